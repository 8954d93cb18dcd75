"""The command ``plait``: starts ranks, reports on this machine and on what happened."""

import argparse
import contextlib
import errno
import os
import sys
from collections.abc import Callable, Sequence
from importlib.metadata import PackageNotFoundError, version

from plait import _launch
from plait._mpi_find import NoMpiError

# Each command imports the modules that it needs: `plait run` must start without JAX.

USAGE_CODE = 2
PIPE_CODE = 128 + 13  # as for a program that SIGPIPE has ended
UNWRITTEN_CODE = 1  # say, the output went to a full disk
OF_STREAMS = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EBADF)


def package_version() -> str:
    """The installed version, or a word for an uninstalled tree."""
    try:
        return version("plait")
    except PackageNotFoundError:
        return "not installed"


def number_of(things: str) -> Callable[[str], int]:
    """A parser of positive integers, for argparse."""

    def count(text: str) -> int:
        value = int(text)
        if value < 1:
            raise argparse.ArgumentTypeError(f"{value} is not a number of {things}")
        return value

    return count


def extent(text: str) -> int:
    """An extent of an array; for argparse."""
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{value} is not an extent; expected 1 or more")
    return value


def seconds(text: str) -> float:
    """A number of seconds, 0 or more; for argparse."""
    value = float(text)
    if not value >= 0:
        raise argparse.ArgumentTypeError(f"{value} is not a time; expected 0 or more")
    return value


def build_parser() -> argparse.ArgumentParser:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="plait",
        description="MPI communication, distributed FFTs and distributed linear algebra inside "
        "jax.jit: starts programs on ranks, and says what happens there.",
    )
    parser.add_argument("--version", action="version", version=f"plait {package_version()}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")

    run = commands.add_parser(
        "run",
        help="run a program on several ranks",
        description="Run PROGRAM on N ranks with the launcher of the MPI that mpi4py loads: on "
        "this machine, on the nodes of a batch job, or on the hosts that a file lists. "
        "HYDRA_HOST_FILE names this file for MPICH, PRTE_MCA_prte_default_hostfile for Open MPI 5, "
        "and OMPI_MCA_orte_default_hostfile for Open MPI 4. Each line of output is labelled with "
        "its rank. The exit code is 0 only if every rank ended well, and 124 after the time limit. "
        "SIGUSR1 and SIGUSR2 are passed on to the ranks of this machine.",
        usage="plait run [-h] -n N [--timeout S] [--trace FILE] (PROGRAM | -m MODULE) [ARGS ...]",
    )
    run.add_argument(
        "-n", type=number_of("ranks"), required=True, metavar="N", dest="n_ranks", help="ranks"
    )
    run.add_argument(
        "--timeout", type=seconds, default=0.0, metavar="S", help="end the job after S seconds"
    )
    run.add_argument(
        "--trace", metavar="FILE", default="", help="write a trace to FILE, for Perfetto"
    )
    run.add_argument("-m", nargs=argparse.REMAINDER, dest="module", help="run a module, as Python")
    run.add_argument("program", nargs=argparse.REMAINDER, metavar="PROGRAM", help="with arguments")
    run.set_defaults(action=run_command)

    info = commands.add_parser("info", help="show versions, MPI, CPU and memory settings")
    info.set_defaults(action=info_command)

    doctor = commands.add_parser(
        "doctor",
        help="say what is slow or wrong here, and what mends it",
        description="Looks at this installation and this machine, runs two ranks, and says what "
        "is slow or wrong and what mends it. The exit code is 1 if there is an error.",
    )
    doctor.add_argument("--no-test", action="store_true", help="do not run the two ranks")
    doctor.add_argument(
        "--launcher",
        metavar="COMMAND",
        default="",
        help="what starts the two ranks that test whether MPI reads GPU memory, instead of plait "
        "run: 'srun -N 2 -n 2', or 'mpirun -n 2'",
    )
    doctor.add_argument(
        "--last",
        nargs="?",
        type=number_of("operations"),
        const=16,
        metavar="N",
        help="only show the last N operations (default 16) of each rank of the last job that did "
        "not end well",
    )
    doctor.set_defaults(action=doctor_command)

    tune = commands.add_parser(
        "tune",
        help="measure on which grid of devices transforms of a shape are fastest",
        description="Measures transforms of an array of three extents on all grids of the "
        "devices, prints the table, and keeps it for plait.fft.autotune. On devices of this "
        "process, or under `plait run -n N plait tune ...` on N ranks.",
    )
    tune.add_argument("shape", type=extent, nargs=3, metavar="N", help="three extents")
    tune.add_argument("--dtype", default="complex64", help="complex64 (default), complex128")
    tune.add_argument(
        "--devices",
        type=number_of("devices"),
        default=0,
        metavar="N",
        help="number of devices (default: the number of cores)",
    )
    tune.add_argument(
        "--operations",
        default="pfft3d,pifft3d",
        metavar="NAMES",
        help="functions of plait.fft, separated by commas, each as often as a step calls it",
    )
    tune.add_argument(
        "--layouts",
        default="transposed,natural",
        metavar="NAMES",
        help="layouts of spectra to measure, separated by commas (default transposed,natural)",
    )
    tune.add_argument(
        "--repeats", type=number_of("rounds"), default=5, metavar="N", help="rounds (default 5)"
    )
    tune.add_argument("--file", help="where results are kept, not PLAIT_TUNE_FILE or the cache")
    tune.add_argument("--fresh", action="store_true", help="measure again what FILE contains")
    tune.set_defaults(action=tune_command)

    trace = commands.add_parser("trace", help="make one trace from the parts of ranks")
    actions = trace.add_subparsers(dest="trace_action", required=True, metavar="ACTION")
    merge = actions.add_parser(
        "merge",
        help="make FILE from its parts",
        description="Makes FILE, which Perfetto (ui.perfetto.dev) opens, from the parts that the "
        "ranks of a job with PLAIT_TRACE=FILE have left; plait run does it by itself.",
    )
    merge.add_argument("file", metavar="FILE")
    merge.add_argument("--keep", action="store_true", help="keep the parts")
    merge.set_defaults(action=merge_command)
    return parser


def run_command(arguments: argparse.Namespace) -> int:
    """``plait run``."""
    program = ["-m", *arguments.module] if arguments.module else arguments.program
    if program[:1] == ["--"]:
        program = program[1:]
    if not program:
        print("plait run: no program given", file=sys.stderr)
        return USAGE_CODE
    return _launch.run(program, arguments.n_ranks, arguments.timeout, arguments.trace)


def info_command(_arguments: argparse.Namespace) -> int:
    """``plait info``."""
    from plait import _info

    print(_info.report())
    return 0


def doctor_command(arguments: argparse.Namespace) -> int:
    """``plait doctor``."""
    from plait import _doctor, _record

    if arguments.last:
        print(_record.report(arguments.last))
        return 0
    return _doctor.run(has_test=not arguments.no_test, launcher=arguments.launcher)


def tune_command(arguments: argparse.Namespace) -> int:
    """``plait tune``."""
    from plait import _tune_command  # imports JAX

    return _tune_command.run(arguments)


def merge_command(arguments: argparse.Namespace) -> int:
    """``plait trace merge``."""
    from plait import _trace

    try:
        n, parts = _trace.merge(arguments.file, arguments.keep)
    except OSError as error:
        print(f"plait trace: {arguments.file} cannot be written: {error.strerror}", file=sys.stderr)
        return USAGE_CODE
    if not parts:
        print(f"plait trace: no parts of {arguments.file}", file=sys.stderr)
        return 1
    print(f"{n} operations of {len(parts)} ranks in {arguments.file}")
    print("\n".join(_trace.summary(parts)))
    return 0


def open_streams() -> bool:
    """Makes standard output and errors accept any text; returns whether there is an output.

    Closed errors go nowhere, since the next opened file would get their number.
    """
    if sys.stderr is None:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
        sys.stderr = os.fdopen(2, "w", closefd=False)
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")  # for letters that the locale lacks
    return sys.stdout is not None


def give_up_output() -> None:
    """Drops unwritten output: exit does not try again, and a process that goes on may write."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            os.dup2(nowhere, stream.fileno())


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; returns the exit code."""
    if not open_streams():
        print("plait: standard output is closed", file=sys.stderr)
        return USAGE_CODE
    arguments = build_parser().parse_args(argv)
    try:
        code = arguments.action(arguments)
        sys.stdout.flush()
        return code
    except (NoMpiError, FileNotFoundError, _launch.TraceError, _launch.LimitError) as error:
        print(f"plait {arguments.command}: {error}", file=sys.stderr)
        return USAGE_CODE
    except BrokenPipeError:  # nobody reads any more; a launcher of ranks ends with this process
        give_up_output()
        return PIPE_CODE
    except BlockingIOError as error:
        if hasattr(error, "characters_written"):  # output to a non-blocking stream
            raise
        print(
            f"plait {arguments.command}: no process can be started: {error.strerror}; "
            "the limit on processes is reached (ulimit -u, or a container's pids)",
            file=sys.stderr,
        )
        return USAGE_CODE
    except OSError as error:
        if error.filename is not None or error.errno not in OF_STREAMS:
            raise
        with contextlib.suppress(OSError):
            text = f"plait {arguments.command}: output cannot be written: {error.strerror}"
            print(text, file=sys.stderr, flush=True)
        give_up_output()
        return UNWRITTEN_CODE
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main())
