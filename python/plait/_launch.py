"""``plait run``: start the ranks of a program with the right launcher, flags and environment."""

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

from plait import _trace_file
from plait._launch_hosts import chooses_btl, export_flags, names_other_hosts, slurm_environment
from plait._launch_output import LimitError, Streams, job_folder
from plait._launch_trace import ENDING, TraceError, absolute, check_trace, merge_trace
from plait._mpi_find import find_launcher, find_mpi
from plait._rank import (
    BLIND_LINGER_S,
    LINGER_S,
    follow,
    guarded,
    has_left_in_order,
    host,
    read_note,
    thread_defaults,
)

__all__ = ("LimitError", "TraceError")  # the errors of run(), for its callers

TIME_LIMIT_CODE = 124
GRACE_S = 5.0
PASSED_ON = (signal.SIGUSR1, signal.SIGUSR2)
PAUSES = (signal.SIGTSTP, signal.SIGCONT)  # ^Z and fg, which the terminal does not tell the ranks
LAUNCHER_S = 10.0  # for a launcher to see that ranks have ended; MPICH's sometimes never does
FINALIZE_S = 5.0  # the same if the others wait in MPI_Finalize and have nothing more to say
# Large blocks in huge pages, which malloc keeps instead of returning them to the kernel after each
# use: x + 1 on 64 MiB takes 77 ms without, 17 ms with huge pages, 8 ms with all four (2 cores).
MALLOC_TUNABLES = {
    "glibc.malloc.hugetlb": "1",
    "glibc.malloc.mmap_threshold": str(1 << 32),
    "glibc.malloc.trim_threshold": str(1 << 34),
    "glibc.malloc.arena_max": "1",
}


def n_cores():
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0))


def tunables(present):
    """GLIBC_TUNABLES with plait's added; the user's own settings stay."""
    given = [item for item in present.split(":") if item]
    names = {item.split("=")[0] for item in given}
    return ":".join(given + [f"{k}={v}" for k, v in MALLOC_TUNABLES.items() if k not in names])


def rank_environment(launcher, n_ranks, base):
    """The environment of the ranks; settings in `base` are kept."""
    return thread_defaults(n_cores(), n_ranks) | launcher_environment(launcher, n_ranks, base)


def launcher_environment(launcher, n_ranks, base):
    """The same without thread counts: the ranks' wrappers know how many ranks share a host."""
    defaults = {"PYTHONUNBUFFERED": "1"}
    if launcher.family == "openmpi":
        defaults |= _openmpi_environment(launcher, n_ranks, base)
    if launcher.family == "mpich" and not peers_are_readable():
        defaults["MPIR_CVAR_CH4_CMA_ENABLE"] = "0"  # MPICH does not notice refused reads
    if launcher.family == "intel":
        defaults["I_MPI_PIN"] = "off"
    defaults |= slurm_environment(launcher.family, base)
    environment = defaults | dict(base)
    environment["GLIBC_TUNABLES"] = tunables(base.get("GLIBC_TUNABLES", ""))
    return environment


def _openmpi_environment(launcher, n_ranks, base):
    variables = {}
    if os.geteuid() == 0:
        variables |= {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    if launcher.major >= 5 and not (names_other_hosts(base) or chooses_btl(launcher.path, base)):
        variables["OMPI_MCA_btl"] = "^ofi"  # it costs a second at start-up
    if launcher.major < 5 and not peers_are_readable():
        variables["OMPI_MCA_btl_vader_single_copy_mechanism"] = "none"
    if n_ranks > n_cores():
        variables["OMPI_MCA_mpi_yield_when_idle"] = "1"
    return variables


def peers_are_readable():
    """Whether one process may read another's memory here; tries it with two forked processes."""
    import ctypes

    class Span(ctypes.Structure):
        _fields_ = (("base", ctypes.c_void_p), ("bytes", ctypes.c_size_t))

    libc = ctypes.CDLL(None, use_errno=True)
    secret, copy = ctypes.c_int64(0x706C616974), ctypes.c_int64(0)
    pr_set_ptracer, anyone = 0x59616D61, ctypes.c_ulong(-1)
    libc.prctl(pr_set_ptracer, anyone, 0, 0, 0)
    reader = os.fork()
    if reader == 0:  # a child reads its parent, as ranks read each other
        there = Span(ctypes.addressof(secret), 8)
        here = Span(ctypes.addressof(copy), 8)
        n = libc.process_vm_readv(os.getppid(), ctypes.byref(here), 1, ctypes.byref(there), 1, 0)
        os._exit(0 if n == 8 and copy.value == secret.value else 1)
    return os.waitpid(reader, 0)[1] == 0


def launcher_command(launcher, n_ranks):
    """The launcher with its flags: more ranks than cores are allowed, nothing is bound."""
    command = [launcher.path]
    if launcher.family == "openmpi":
        command += ["--bind-to", "none"]
        # continuous: when a rank has died, the others may still say what they waited for.
        five = ["--map-by", ":OVERSUBSCRIBE", "--continuous"]
        command += five if launcher.major >= 5 else ["--oversubscribe"]
    return [*command, "-n", str(n_ranks)]


def program_command(program):
    """The command that starts PROGRAM: Python files and modules with this Python.

    mpi4py runs them, so that a rank with a Python exception ends the job instead of waiting in
    MPI_Finalize for ranks that wait for it.
    """
    python = [sys.executable, "-m", "mpi4py"]
    if program[0] == "-m":
        return [*python, *program]
    if program[0].endswith(".py"):
        if not os.path.isfile(program[0]):
            raise FileNotFoundError(f"{program[0]}: no such file")
        return [*python, *program]
    if program[0] == "plait":  # plait itself, installed or not
        return [*python, "-m", *program]
    found = shutil.which(program[0])
    if not found:
        kind = "no program" if os.path.isfile(program[0]) else "no such program"
        raise FileNotFoundError(
            f"{program[0]}: {kind}; expected a Python file that ends in .py, -m MODULE, or what "
            "can be executed"
        )
    return [found, *program[1:]]


class Ends:
    """How the ranks have ended so far, as noted by their wrappers."""

    LOOK_EVERY_S = 0.5

    def __init__(self, folder, n_ranks):
        self.folder = folder
        self.n_ranks = n_ranks
        self.known = {}  # rank: "0", an exit code, or minus a signal's number
        self.times = {}  # of these ranks: when they began to end
        self.looked = 0.0
        self.reason, self.since = "", 0.0

    def look(self):
        """Reads new notes, in the order in which the ranks began to end."""
        notes = {}
        for rank in set(range(self.n_ranks)) - set(self.known):
            text, when = read_note(self.folder, f"{rank}.ended")
            why, since = read_note(self.folder, f"{rank}.left")  # others learn of it after this
            if text:
                notes[rank] = since if why else when, rank, text
        for when, rank, text in sorted(notes.values()):
            self.known[rank], self.times[rank] = text, when

    def code(self):
        """The exit code of the first rank that ended badly; 0: none has.

        A rank that was asked to end may have been asked because another rank failed, unnoticed
        here: it counts as the first only if no other rank has failed.
        """
        ranks = sorted(self.known, key=lambda rank: (self.times[rank], rank))
        ends = [(rank, self.known[rank]) for rank in ranks]
        bad = [int(end) for rank, end in ends if end != "0" and not self.has_left(rank)]
        own = [end for end in bad if end != -signal.SIGTERM] or bad
        return 0 if not own else own[0] if own[0] > 0 else 128 - own[0]

    def has_left(self, rank):
        """Whether the rank came to its end, but the launcher killed or ended its wrapper."""
        was_ended = self.known.get(rank, "") in ("", str(-signal.SIGTERM))
        return was_ended and has_left_in_order(self.folder, rank)

    def overdue(self, now):
        """Why the launcher should have ended long ago; "" if it should not."""
        if now - self.looked < self.LOOK_EVERY_S:
            return ""
        self.looked = now
        self.look()
        limit, reason = LAUNCHER_S + LINGER_S + BLIND_LINGER_S, ""
        failed = [rank for rank, end in self.known.items() if end != "0"]
        left = [rank for rank in range(self.n_ranks) if rank not in self.known]
        waiting = [rank for rank in left if Path(self.folder, f"{rank}.enters").exists()]
        if not left:
            limit, reason = LAUNCHER_S + BLIND_LINGER_S, "all ranks have ended"
        elif failed and all(has_left_in_order(self.folder, rank) for rank in left):
            limit = FINALIZE_S
            reason = f"rank {failed[0]}, which the others wait for in MPI_Finalize, has failed"
        elif self.known and waiting:  # no rank returns from MPI_Init before all are in it
            limit, gone = LAUNCHER_S, next(iter(self.known))
            reason = f"rank {gone} ended before MPI_Init, in which rank {waiting[0]} waits for it"
        elif failed:
            reason = f"rank {failed[0]} has failed"
        if reason != self.reason:
            self.reason, self.since = reason, now
        return reason if reason and now - self.since > limit else ""

    def pass_on(self, number):
        """Sends a signal to this host's wrappers, which pass it on; returns how many have it."""
        self.look()
        n_told = 0
        for rank in set(range(self.n_ranks)) - set(self.known):
            pid, _ = read_note(self.folder, f"{rank}.begun")  # a rank on another host has none
            if pid and self._is_wrapper(pid):
                os.kill(int(pid), number)
                n_told += 1
        return n_told

    def _is_wrapper(self, pid):
        """Whether the number is still the wrapper's, not another process's."""
        try:
            return os.fsencode(self.folder) in Path(f"/proc/{pid}/cmdline").read_bytes()
        except OSError:
            return False


def follow_this_process():
    """For the launcher: if this process is killed, it still ends the ranks, also on other hosts.

    A signal sent to the whole job, and meant for the ranks, does not end the launcher.
    """
    parent = os.getpid()

    def prepare():
        for number in PASSED_ON:
            signal.signal(number, signal.SIG_IGN)
        follow(parent, signal.SIGTERM)

    return prepare


def signal_name(number):
    """The signal's name; signals for programs' own use have none."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


class Job:
    """A launcher, its ranks' output and its end. Signals may come before the launcher starts."""

    def __init__(self):
        self.process = None
        self.signals = []  # still to be passed on
        self.texts = []  # still to be printed: a handler may interrupt this process's writing
        self.code = None  # set if this process ends the job for a reason of its own
        self.ending_since = None
        self.limit_s = 0.0
        self.started = time.monotonic()

    def start(self, command, environment, streams, ends):
        """Starts the launcher, unless a signal has come."""
        self.streams = streams
        self.ends = ends
        streams.patience.look = self._look
        if self.ending_since is not None:
            return
        self.process = subprocess.Popen(
            command,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            preexec_fn=follow_this_process(),  # safe: there are no other threads
        )
        streams.add(self.process.stdout, 1)
        streams.add(self.process.stderr, 2)
        if self.ending_since is not None:  # it was told to end meanwhile
            self.end(self.code, signal.SIGTERM)

    def end(self, code, number):
        """Ask the launcher to stop. The job's code: `code`, whatever it says; None: its ranks'."""
        self.code = code
        if self.ending_since is None:
            self.ending_since = time.monotonic()
        if self.process is not None:
            is_running = self.process.poll() is None
            self.streams.patience.end_within(GRACE_S if is_running else 0.0)
            if is_running:
                self.process.send_signal(number)

    def wait(self, limit_s):
        """Run until the launcher is gone; returns its exit code, or that of `end`."""
        self.started = time.monotonic()
        self.limit_s = limit_s
        while self.process is not None and self.process.poll() is None:
            self.streams.pump(0.1)
            self._look()
            self._say_what_is_left()
        self.streams.finish()
        self._say_what_is_left()
        code = 0 if self.process is None else self.process.returncode
        if self.ending_since and self.code is None:
            return self.ends.code()
        return self.code if self.code is not None else code if code >= 0 else 128 - code

    def _look(self):
        """Does what cannot wait while nobody reads the output; prints nothing itself."""
        while self.signals:
            self._pass_on(self.signals.pop(0))
        now = time.monotonic()
        if self.limit_s and self.code is None and now - self.started > self.limit_s:
            self.texts.append(f"the time limit of {self.limit_s:g} s has passed; ending the job")
            self.end(TIME_LIMIT_CODE, signal.SIGTERM)
        if self.ending_since is None and (reason := self.ends.overdue(now)):
            self.texts.append(f"{reason}, but the launcher goes on; ending the job")
            self.end(None, signal.SIGTERM)
        if self.ending_since and now - self.ending_since > GRACE_S:
            self.process.kill()

    def _say_what_is_left(self):
        while self.texts:
            self.streams.say(self.texts.pop(0))

    def _pass_on(self, number):
        n = self.ends.pass_on(number)
        if number == signal.SIGTSTP:
            os.kill(os.getpid(), signal.SIGSTOP)
        elif number not in PAUSES:
            of_all = f"{n} of {self.ends.n_ranks} ranks"
            self.texts.append(f"{signal_name(number)}: passed on to {of_all}")

    def catch(self):
        """From here on, signals to this process are for the job, except ignored ones."""
        for number in ENDING:
            self._catch(number, self.interrupt)
        for number in PASSED_ON + PAUSES:  # not passed on at once: this process may be writing
            self._catch(number, lambda number, _: self.signals.append(number))

    @staticmethod
    def _catch(number, handler):
        if signal.getsignal(number) != signal.SIG_IGN:  # set by nohup and shells
            signal.signal(number, handler)

    def interrupt(self, number, _frame):
        """Pass a signal on; if it came from a terminal, everyone has it already."""
        self.texts.append(f"{signal.Signals(number).name}: ending the job")
        self.end(128 + number, signal.SIGTERM)


def say(text):
    """Print a line of the launcher's own."""
    print(f"plait run: {text}", file=sys.stderr, flush=True)


def verdict(folder, n_ranks, code, is_ended, say=say):
    """The job's exit code: 0 only if every rank reported a good end; names the other ranks.

    It is the code of the rank that failed first, whatever the launcher reports. The launcher may
    report success after it killed a job in which one rank had left with 0. It may report a signal's
    number as a code, or the code of a wrapper that it killed meanwhile. The launcher knows more if
    it ended a rank and no rank is known to have failed, as after a call of MPI_Abort. is_ended:
    this process ended the job, with that code.
    """
    ends = Ends(folder, n_ranks)
    ends.look()
    unknown, is_cut_short = False, False
    for rank in range(n_ranks):
        ended = ends.known.get(rank, "")
        is_cut_short = is_cut_short or ended != "0"
        if ends.has_left(rank):
            say(
                f"rank {rank} had left its program, but its process had not ended: JAX's shutdown "
                "and MPI_Finalize, which run at exit, may wait for other ranks"
            )
        elif ended == "":
            unknown = True
            has_begun = Path(folder, f"{rank}.begun").exists()
            how = "or was killed" if has_begun else "was killed, or never started"
            say(f"rank {rank} ended without saying how: it aborted, {how}")
        elif ended.startswith("-"):
            say(f"rank {rank} was killed by {signal_name(-int(ended))}{_why(-int(ended))}")
        elif ended != "0":
            say(f"rank {rank} exited with code {ended}")
    first = ends.code()
    is_theirs = unknown and first == 128 + signal.SIGTERM and code not in (0, signal.SIGTERM)
    if first and not is_ended and not is_theirs:
        code = first
    return code or int(is_cut_short)


def _why(number):
    """What may have caused a signal that gives no reason itself, or ""."""
    if number != signal.SIGBUS:
        return ""
    try:
        space = os.statvfs("/dev/shm")
    except OSError:
        return ""
    free = space.f_bavail * space.f_frsize >> 20
    return f": is shared memory full? /dev/shm has {free} MiB free now, see plait doctor"


def run(program, n_ranks, limit_s=0.0, trace=""):
    """Run PROGRAM on `n_ranks` ranks; returns the exit code.

    Raises NoMpiError if there is no MPI or launcher, FileNotFoundError without a program,
    TraceError for a trace that cannot be written, LimitError for more ranks than there may be
    files or no room for their pipes, BlockingIOError for no more processes, OSError for output that
    cannot be written.
    """
    command = program_command(program)
    launcher = find_launcher(find_mpi())
    environment = launcher_environment(launcher, n_ranks, os.environ)
    trace = trace or _trace_file.asked_for(environment)
    if trace:
        environment["PLAIT_TRACE"] = trace = absolute(trace)
        check_trace(trace)
    wrapper = [sys.executable, "-I", "-S", str(Path(__file__).with_name("_rank.py"))]
    facts = [launcher.family, host(), str(n_ranks)]
    start = launcher_command(launcher, n_ranks) + export_flags(launcher.family, environment)
    job = Job()
    job.catch()  # before the folder exists: a signal would leave it behind
    with job_folder() as folder:
        environment["PLAIT_RUN_JOB"] = name = os.path.basename(folder)
        streams = Streams(folder, n_ranks)
        if streams.files_before:
            environment["PLAIT_RUN_FILES"] = str(streams.files_before)
        words = [*start, *wrapper, folder, *facts, *guarded(command)]
        job.start(words, environment, streams, Ends(folder, n_ranks))
        code = job.wait(limit_s)
        stopped = merge_trace(trace, f"run {name}", streams.say) if trace and job.process else 0
        if job.process:
            code = verdict(folder, n_ranks, code, job.code is not None, streams.say)
        return 128 + stopped if stopped else code


def run_captured(command, limit_s, **variables):
    """Runs a job of plait's own, without the traces and lines of user jobs; returns its output."""
    environment = {k: v for k, v in os.environ.items() if k not in ("PLAIT_DEBUG", "PLAIT_TRACE")}
    environment.setdefault("JAX_PLATFORMS", "cpu")
    return subprocess.run(
        command,
        capture_output=True,
        text=True,
        env=environment | variables,
        timeout=limit_s,
        stdin=subprocess.DEVNULL,
        check=False,
    )
