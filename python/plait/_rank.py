"""One rank of ``plait run``: sends its output to the labelled streams and records how it ended.

The launcher starts it as ``python _rank.py FOLDER FAMILY HOST N PROGRAM [ARGS...]``, without site
packages. The arguments are the job's folder, the launcher's family of MPI and its host, and the
number of ranks. It stays as the parent of the program, so that an end that the launcher would
report as success (``_exit(0)`` in the middle of a job, a rank killed with it) is known.
"""

import ctypes
import fcntl
import os
import re
import select
import signal
import stat
import sys
import termios
import time

# Which of the ranks of its host a rank is, and how many ranks the host has. Slurm's variables would
# describe the launcher's own processes, if the launcher starts them with Slurm.
LOCAL_VARIABLES = (
    ("MPI_LOCALRANKID", "MPI_LOCALNRANKS"),
    ("OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"),
)
GPU_CHOICES = ("JAX_CUDA_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES")
RANK_VARIABLES = ("OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK", "SLURM_PROCID")
HYDRA_VARIABLES = ("PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS")
OPEN_MPI_VARIABLES = (
    *("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    *("OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"),
)
THREAD_VARIABLES = (
    *("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"),
    "NPROC",  # size of XLA's thread pool on the CPU
)
PR_SET_PDEATHSIG = 1
UNSTARTED_CODE = 126  # as in shells, where 127 means that the command does not exist
LIBC = ctypes.CDLL(None)
LINGER_S = 5.0
BLIND_LINGER_S = 3.0  # if it is unknown whether anybody is left
# Precedes what a rank on another host sends through the launcher: RANK.KIND TEXT. Kinds are the
# notes "begun" and "ended", and lines of "out" and "err"; with a "+" more of the line follows.
MARK = b"\x1eplait run: "
RECORD_BYTES = 4096  # what a pipe, and a read of Open MPI's launcher, takes in one piece
PIECE_BYTES = RECORD_BYTES - 64
READ_BYTES = 1 << 16
DRAIN_S = 1.0


def host():
    """A text unique to this host; several hosts may share a folder."""
    try:
        with open("/proc/sys/kernel/random/boot_id") as file:
            boot = file.read().strip()
    except OSError:
        boot = ""
    return f"{os.uname().nodename}:{boot}"


def forget_others(environment, family):
    """Removes what outer launchers, or a shell, tell of other ranks."""
    others = HYDRA_VARIABLES if family == "openmpi" else OPEN_MPI_VARIABLES
    for name in (*others, "SLURM_STEP_NUM_TASKS"):
        environment.pop(name, None)


def rank_of(environment):
    """This process's rank as the launcher tells it."""
    for name in RANK_VARIABLES:
        if name in environment:
            return environment[name]
    sys.exit("plait run: the launcher tells no rank; none of " + ", ".join(RANK_VARIABLES))


def thread_defaults(n_cores, n_ranks):
    """Thread counts of libraries, if so many ranks share so many cores."""
    return dict.fromkeys(THREAD_VARIABLES, str(max(1, n_cores // n_ranks)))


def n_ranks_here(environment, n_ranks):
    """How many of `n_ranks` are on this host."""
    told = [environment[size] for _, size in LOCAL_VARIABLES if size in environment]
    return int(told[0]) if told else n_ranks


def names_in(folder):
    """The names in a folder; none if it cannot be read."""
    try:
        return os.listdir(folder)
    except OSError:
        return []


def n_gpus(root=""):
    """NVIDIA GPUs of this host; asking the driver would take a second, and memory of each GPU."""
    devices = [name for name in names_in(f"{root}/dev") if name.startswith("nvidia")]
    n = sum(name.removeprefix("nvidia").isdigit() for name in devices)
    return n or len(names_in(f"{root}/proc/driver/nvidia/gpus"))


def may_have_gpus(environment):
    """Whether the user lets JAX have NVIDIA GPUs; an empty choice means none."""
    platforms = environment.get("JAX_PLATFORMS") or "cuda"
    return "cuda" in platforms or "gpu" in platforms


def own_gpu(environment, root=""):
    """JAX's number of this rank's GPU; "" if somebody has chosen, or a rank may have all.

    JAX then hides the other GPUs only from itself. CUDA_VISIBLE_DEVICES would hide them from the
    driver, and then ranks may be unable to open each other's memory.
    """
    is_chosen = any(name in environment for name in GPU_CHOICES)
    is_wanted = environment.get("PLAIT_CUDA") != "0" and may_have_gpus(environment)
    for rank, size in LOCAL_VARIABLES:
        if is_wanted and not is_chosen and int(environment.get(size, 1)) > 1:
            n = n_gpus(root)
            return str(int(environment[rank]) % n) if n else ""
    return ""


def open_streams(folder, rank):
    """This rank's streams for output and errors; none if nobody reads them on this host."""
    streams = []
    for name in ("out", "err"):
        try:
            # Non-blocking: without a reader this fails; else it would wait for one if the folder is
            # shared.
            flags = os.O_WRONLY | os.O_NOCTTY | os.O_NONBLOCK
            streams.append(os.open(f"{folder}/{rank}.{name}", flags))
        except OSError:
            break
    if len(streams) < 2:
        while streams:
            os.close(streams.pop())
    for stream in streams:
        os.set_blocking(stream, True)
    return streams


def leave_note(folder, name, text):
    """A note in a job's folder: a file, or, on a full disk, a link whose target is the text."""
    path = f"{folder}/{name}"
    try:
        with open(path, "w") as note:
            note.write(text)
    except OSError:
        try:
            if os.path.exists(path):
                os.unlink(path)
            os.symlink(text, path)  # a short target needs no block
        except OSError:
            pass  # the job is over


def read_note(folder, name):
    """A note's text, and when it was left; "" if it does not exist, or is incomplete."""
    path = f"{folder}/{name}"
    try:
        left = os.lstat(path)
        if stat.S_ISLNK(left.st_mode):
            return os.readlink(path), left.st_mtime_ns
        with open(path) as note:
            return note.read(), left.st_mtime_ns
    except OSError:
        return "", 0


def has_left_in_order(folder, rank):
    """Whether a rank has come to MPI_Finalize without reporting a failure."""
    try:
        return os.stat(f"{folder}/{rank}.left").st_size == 0
    except OSError:
        return False


class Here:
    """The way to ``plait run`` on the same host: streams that it reads, notes as files."""

    def __init__(self, folder, rank, streams):
        self.folder = folder
        self.rank = rank
        for fd, stream in zip((1, 2), streams, strict=True):
            os.dup2(stream, fd)
            os.close(stream)

    def attach(self):
        """In the program's process, before the program begins: it inherits this output."""

    def wait(self, pid):
        """Waits for the program; returns its status."""
        return os.waitpid(pid, 0)[1]

    def note(self, what, text):
        """Leaves a note in the job's folder."""
        leave_note(self.folder, f"{self.rank}.{what}", text)

    def others_are_left(self):
        """Whether ranks that have begun may still have something to say."""
        names = names_in(self.folder)
        begun = {name[:-6] for name in names if name.endswith(".begun")}
        left = begun - {name[:-6] for name in names if name.endswith(".ended")}
        return not all(has_left_in_order(self.folder, rank) for rank in left)

    def linger(self, _code):
        """Waits some seconds until the others have ended.

        A launcher that sees a rank end badly, or before MPI_Finalize, kills the others before they
        can say what they waited for.
        """
        end = time.monotonic() + LINGER_S
        while time.monotonic() < end and self.others_are_left():
            time.sleep(0.02)


class Elsewhere:
    """The way to ``plait run`` from another host: the launcher carries output and notes.

    The launcher reads and writes the output of all ranks in pieces, which may break lines into each
    other. So everything goes through one pipe, in records no longer than such a piece, and further
    records only when the last ones have been read.
    """

    def __init__(self, rank):
        self.rank = rank
        self.poll = select.poll()
        self.kinds, self.theirs, self.waiting = {}, [], {}
        for kind in ("out", "err"):
            ours, theirs = self._pipe()
            self.kinds[ours] = kind
            self.waiting[kind] = b""
            self.theirs.append(theirs)
        self.woken, wake = self._pipe()
        os.set_blocking(wake, False)
        signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)

    def _pipe(self):
        """A pipe, whose read end is polled."""
        ours, theirs = os.pipe()
        os.set_blocking(ours, False)
        self.poll.register(ours, select.POLLIN)
        return ours, theirs

    def attach(self):
        """In the program's process, before the program begins: it gets pipes to this process."""
        for fd, pipe in zip((1, 2), self.theirs, strict=True):
            os.dup2(pipe, fd)

    def wait(self, pid):
        """Passes on what the program prints until it ends; returns its status.

        Processes that it has started may keep the pipes open; they are not waited for.
        """
        while self.theirs:
            os.close(self.theirs.pop())
        done = 0
        while not done:
            self._pump(None)
            done, status = os.waitpid(pid, os.WNOHANG)
        end = time.monotonic() + DRAIN_S
        while self._pump(0) and time.monotonic() < end:
            pass
        for kind, rest in self.waiting.items():
            if rest:
                self._send([self._record(kind, rest)])
            self.waiting[kind] = b""
        return status

    def _pump(self, limit_ms):
        """Waits for output and passes it on; returns whether there was any."""
        busy = False
        for fd, _ in self.poll.poll(limit_ms):
            try:
                data = os.read(fd, READ_BYTES)
            except BlockingIOError:
                continue
            if not data:
                self.poll.unregister(fd)
            elif fd != self.woken:
                busy = True
                self._pass_on(self.kinds[fd], data)
        return busy

    def _pass_on(self, kind, data):
        """Sends complete lines, and of a long line the parts that there are."""
        *lines, rest = (self.waiting[kind] + data).split(b"\n")
        records = []
        for line in lines:
            records += self._pieces(kind, line)
            records.append(self._record(kind, line[len(line) // PIECE_BYTES * PIECE_BYTES :]))
        records += self._pieces(kind, rest)
        self.waiting[kind] = rest[len(rest) // PIECE_BYTES * PIECE_BYTES :]
        self._send(records)

    def _pieces(self, kind, line):
        """Records of a line's first pieces, except an incomplete last piece."""
        starts = range(0, len(line) - PIECE_BYTES + 1, PIECE_BYTES)
        return [self._record(kind + "+", line[i : i + PIECE_BYTES]) for i in starts]

    def _record(self, kind, text):
        return MARK + f"{self.rank}.{kind} ".encode() + text + b"\n"

    def _send(self, records):
        """Sends records, each time as many as a pipe takes in one piece."""
        batch = b""
        for record in records:
            if len(batch) + len(record) > RECORD_BYTES:
                write(batch)
                batch = b""
            batch += record
        write(batch)

    def note(self, what, text):
        """Sends a note."""
        self._send([self._record(what, text.encode())])

    def linger(self, code):
        """After a bad end, waits some seconds for other ranks, which are unknown here."""
        end = time.monotonic() + (BLIND_LINGER_S if code else 0)
        while (left_s := end - time.monotonic()) > 0:
            self._pump(1000 * left_s)


def write(batch):
    """Writes to the launcher once it has read all that was written before."""
    pipe = select.poll()
    pipe.register(2, 0)
    try:
        while n_unread(2) and not pipe.poll(0):  # its reader is there
            time.sleep(0.0002)
        while batch:
            batch = batch[os.write(2, batch) :]
    except OSError:
        pass  # the launcher is gone; this process ends soon after


def n_unread(fd):
    """Unread bytes in a pipe; 0 for any other file."""
    if not stat.S_ISFIFO(os.fstat(fd).st_mode):
        return 0
    return int.from_bytes(fcntl.ioctl(fd, termios.FIONREAD, bytes(4)), sys.byteorder)


def follow(parent, number):
    """In a new process: sends it this signal when its parent ends, however that happens."""
    LIBC.prctl(PR_SET_PDEATHSIG, number, 0, 0, 0)
    if os.getppid() != parent:
        os.kill(os.getpid(), number)


def guarded(words):
    """A program's words, protected from launchers: a colon would begin another program."""
    return ["=" + word if re.fullmatch("=*:", word) else word for word in words]


def unguarded(words):
    """The original words."""
    return [word[1:] if re.fullmatch("=+:", word) else word for word in words]


def restore_files(environment, is_here):
    """For the program: restores the limit of open files, raised for launchers of many ranks."""
    n = environment.pop("PLAIT_RUN_FILES", "")
    if n and is_here:
        import resource  # rarely needed

        _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (int(n), hard))


def start(command, way):
    """Start the program; it dies with this process."""
    parent = os.getpid()
    pid = os.fork()
    if pid:
        return pid
    follow(parent, signal.SIGKILL)
    restore_files(os.environ, isinstance(way, Here))
    if int(way.rank):  # MPICH's launcher leaves the other ranks a pipe that never ends
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    for number in (signal.SIGPIPE, signal.SIGUSR1, signal.SIGUSR2):
        signal.signal(number, signal.SIG_DFL)  # Python ignores SIGPIPE, launchers ignore the others
    way.attach()
    try:
        os.execvp(command[0], command)
    except OSError as error:
        os.write(2, f"plait run: {command[0]}: {error.strerror}\n".encode())
    os._exit(127)


def pass_signals_on(pid):
    """From here on, signals to this process go to the program."""

    def send(number, _frame):
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            pass  # the program has just ended

    for number in (signal.SIGINT, signal.SIGQUIT):
        signal.signal(number, signal.SIG_IGN)  # the terminal sends it to the program as well
    for number in (signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2, signal.SIGCONT):
        signal.signal(number, send)
    signal.signal(signal.SIGTSTP, lambda *_: send(signal.SIGSTOP, None))
    if signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:  # otherwise nohup has decided
        signal.signal(signal.SIGHUP, send)


def end_with(parent, pid):
    """Has the program killed when the launcher is gone: Open MPI's launcher leaves ranks behind.

    Uses a signal that is otherwise ignored, since it also comes when only a thread of the launcher
    has ended.
    """

    def look(_number, _frame):
        if os.getppid() != parent:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass  # the program has just ended

    signal.signal(signal.SIGURG, look)
    LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGURG, 0, 0, 0)
    os.kill(os.getpid(), signal.SIGURG)  # the launcher may be gone already


def keep_signals():
    """From here on, since the program has ended, signals are for this process again."""
    signal.signal(signal.SIGURG, signal.SIG_IGN)
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGCONT):
        if signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, signal.SIG_DFL)
    for number in (signal.SIGUSR1, signal.SIGUSR2, signal.SIGTSTP):
        signal.signal(number, signal.SIG_IGN)


def find_way(folder, where, rank):
    """How this rank's output reaches ``plait run``, which was started on the host `where`."""
    is_here = where == host() and os.path.isdir(folder)
    streams = open_streams(folder, rank) if is_here else []
    return Here(folder, rank, streams) if streams else Elsewhere(rank)


def prepare(environment, folder, rank, n_ranks, is_here):
    """Adds to the program's environment what only this process knows."""
    environment["PLAIT_RUN_RANK"] = rank
    environment.setdefault("PLAIT_RUN_JOB", os.path.basename(folder))
    for name in ("PLAIT_RUN_FOLDER", "PLAIT_RUN_WRAPPER"):
        environment.pop(name, None)
    if is_here:
        environment |= {"PLAIT_RUN_FOLDER": folder, "PLAIT_RUN_WRAPPER": str(os.getpid())}
    if gpu := own_gpu(environment):
        environment["JAX_CUDA_VISIBLE_DEVICES"] = gpu
    n_cores = len(os.sched_getaffinity(os.getppid()))  # of all ranks here, even bound ones
    for name, value in thread_defaults(n_cores, n_ranks_here(environment, n_ranks)).items():
        environment.setdefault(name, value)


def end_by(number):
    """Ends this process by the signal that ended its program, so that the launcher sees it."""
    try:
        signal.signal(number, signal.SIG_DFL)
    except OSError:
        pass  # the signal always has its default action
    os.kill(os.getpid(), number)


def main():
    parent = os.getppid()
    folder, family, where, n_ranks, *words = sys.argv[1:]
    command = unguarded(words)
    forget_others(os.environ, family)
    rank = rank_of(os.environ)
    way = find_way(folder, where, rank)
    is_here = isinstance(way, Here)
    try:
        prepare(os.environ, folder, rank, int(n_ranks), is_here)
        pid = start(command, way)
    except OSError as error:  # the note keeps others from waiting for this rank in MPI_Init
        os.write(2, f"plait run: rank {rank} cannot be started: {error.strerror}\n".encode())
        way.note("ended", str(UNSTARTED_CODE))
        os._exit(UNSTARTED_CODE)
    pass_signals_on(pid)
    end_with(parent, pid)
    way.note("begun", str(os.getpid()) if is_here else "")
    code = os.waitstatus_to_exitcode(way.wait(pid))
    way.note("ended", str(code))
    keep_signals()
    way.linger(code)
    if code < 0:
        end_by(-code)
    os._exit(code)


if __name__ == "__main__":
    main()
