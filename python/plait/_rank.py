"""One rank of ``plait run``: sends its output to the labelled streams and records how it ended.

Started by the launcher as ``python _rank.py FOLDER PROGRAM [ARGS...]``, without site packages.
It stays as the parent of the program, so that an end that the launcher would report as success
(``_exit(0)`` in the middle of a job, a rank killed with it) is known.
"""

import ctypes
import os
import signal
import sys
import time

# Which of the ranks of its host a rank is, and how many there are. Slurm's would be those of the
# launcher's own processes, if that starts them by it.
LOCAL_VARIABLES = (
    ("MPI_LOCALRANKID", "MPI_LOCALNRANKS"),
    ("OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"),
)
GPU_CHOICES = ("JAX_CUDA_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES")
RANK_VARIABLES = ("PMI_RANK", "PMIX_RANK", "OMPI_COMM_WORLD_RANK", "SLURM_PROCID")
PR_SET_PDEATHSIG = 1
LINGER_S = 5.0
BLIND_LINGER_S = 3.0  # not knowing whether anybody is left
# Before a note that a rank on another host sends through the launcher, which carries its output.
MARK = b"\x1eplait run: "


def rank_of(environment):
    """This process's rank as the launcher tells it."""
    for name in RANK_VARIABLES:
        if name in environment:
            return environment[name]
    sys.exit("plait run: the launcher tells no rank; none of " + ", ".join(RANK_VARIABLES))


def names_in(folder):
    """What is there; nothing if it cannot be read."""
    try:
        return os.listdir(folder)
    except OSError:
        return []


def n_gpus(root=""):
    """NVIDIA GPUs of this host; asking the driver takes a second, and memory of each."""
    devices = [name for name in names_in(f"{root}/dev") if name.startswith("nvidia")]
    n = sum(name.removeprefix("nvidia").isdigit() for name in devices)
    return n or len(names_in(f"{root}/proc/driver/nvidia/gpus"))


def own_gpu(environment, root=""):
    """JAX's number of the GPU of this rank; "" where somebody has chosen, or a rank may have all.

    JAX hides the others from itself alone. CUDA_VISIBLE_DEVICES would hide them from the driver,
    and then ranks may not open each other's memory.
    """
    platforms = environment.get("JAX_PLATFORMS", "cuda")
    is_chosen = any(name in environment for name in GPU_CHOICES)
    is_wanted = environment.get("PLAIT_CUDA") == "1" and ("cuda" in platforms or "gpu" in platforms)
    for rank, size in LOCAL_VARIABLES:
        if is_wanted and not is_chosen and int(environment.get(size, 1)) > 1:
            n = n_gpus(root)
            return str(int(environment[rank]) % n) if n else ""
    return ""


def redirect(folder, rank):
    """Point standard output and error at this rank's streams."""
    for fd, name in ((1, "out"), (2, "err")):
        try:
            stream = os.open(f"{folder}/{rank}.{name}", os.O_WRONLY | os.O_NOCTTY)
        except OSError:
            continue  # another host: the launcher carries the output, without a label
        os.dup2(stream, fd)
        os.close(stream)


def start(command):
    """Start the program; it dies with this process."""
    pid = os.fork()
    if pid:
        return pid
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    try:
        os.execvp(command[0], command)
    except OSError as error:
        os.write(2, f"plait run: {command[0]}: {error.strerror}\n".encode())
    os._exit(127)


def others_are_left(folder):
    """Whether ranks that this host started have not ended."""
    try:
        names = os.listdir(folder)
    except OSError:
        return False  # another host
    begun = {name[:-6] for name in names if name.endswith(".begun")}
    return bool(begun - {name[:-6] for name in names if name.endswith(".ended")})


def linger(folder, code):
    """Waits until the others have ended, for some seconds.

    A launcher that sees a rank end badly, or before MPI_Finalize, kills the others, and they
    could not say what they waited for. On another host nothing is known of them.
    """
    if code != 0 and not os.path.isdir(folder):
        time.sleep(BLIND_LINGER_S)
    end = time.monotonic() + LINGER_S
    while time.monotonic() < end and others_are_left(folder):
        time.sleep(0.02)


def note(folder, name, text):
    """Leaves a note in the job's folder; from another host it goes through the launcher."""
    try:
        with open(f"{folder}/{name}", "w") as record:
            record.write(text)
    except OSError:
        os.write(2, MARK + f"{name} {text}\n".encode())


def main():
    folder, *command = sys.argv[1:]
    rank = rank_of(os.environ)
    os.environ["PLAIT_RUN_RANK"] = rank
    if os.path.isdir(folder):  # not on another host
        os.environ |= {"PLAIT_RUN_FOLDER": folder, "PLAIT_RUN_WRAPPER": str(os.getpid())}
    else:
        os.environ.pop("PLAIT_RUN_FOLDER", None)
    if gpu := own_gpu(os.environ):
        os.environ["JAX_CUDA_VISIBLE_DEVICES"] = gpu
    redirect(folder, rank)
    note(folder, f"{rank}.begun", "")
    pid = start(command)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the terminal sends it to the program as well
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1):
        signal.signal(number, lambda n, _: os.kill(pid, n))
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    note(folder, f"{rank}.ended", str(code))
    linger(folder, code)
    if code < 0:  # end in the same way, so that the launcher sees it
        signal.signal(-code, signal.SIG_DFL) if -code != signal.SIGKILL else None
        os.kill(os.getpid(), -code)
    os._exit(code)


if __name__ == "__main__":
    main()
