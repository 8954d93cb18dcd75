"""How processes end: exit codes, unseen failures, launchers that do not fit, a raising rank."""

import io
import os
import shutil
import signal
import subprocess
import sys
import time
import types

import jax
import plait
import pytest
from plait import _comm, _core, _errors, _exit, _queues
from programs import PACKAGE, run, run_on_two

FAILS = """
c = plait.Comm()
f = plait.jit(lambda x: plait.allreduce(x @ x @ x, plait.SUM, comm=c))
x = jnp.ones((700, 700))
plait.block(f(x))
c.free()
y = f(x)
"""


def test_exit_without_awaiting():
    code, text = run(
        "f = plait.jit(lambda x: plait.allreduce(x @ x, plait.SUM))\ny = f(jnp.ones((500, 500)))"
    )
    assert code == 0, text


LOOKS = """
import atexit
from jax._src import xla_bridge
atexit.register(lambda: print("devices:", xla_bridge.backends_are_initialized()))
import plait
"""


def test_what_has_computed_nothing_makes_no_devices_at_its_end():
    """On a machine with GPUs the devices would take most of the memory."""
    given = {"env": os.environ | {"JAX_PLATFORMS": "tpu"}, "capture_output": True, "text": True}
    done = subprocess.run([sys.executable, "-c", LOOKS], **given, timeout=120, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "devices: False\n", "")


def test_work_that_takes_longer_than_a_wait_for_peers():
    code, text = run(
        "f = plait.jit(lambda x: plait.allreduce(jax.lax.fori_loop(0, 20_000, lambda _, v: v / 2 +"
        " jnp.cos(v), x), plait.SUM))\nf(jnp.ones(1024))\ny = f(jnp.ones(1024))",
        PLAIT_TIMEOUT="0.01",
    )
    assert code == 0 and "at exit, work is still queued after 0.01 s; waiting for it" in text, text


def test_a_failure_that_nobody_saw_makes_the_exit_code_nonzero():
    code, text = run(FAILS)
    assert code != 0 and "CommError" in text


@pytest.mark.long(keep=1)
@pytest.mark.parametrize("limit", ["-5", "nan", "soon"])
def test_a_time_limit_that_is_none(limit):
    code, text = run("print(plait.allreduce(jnp.ones(2), plait.SUM))", PLAIT_TIMEOUT=limit)
    assert code == 0 and "Traceback" not in text and "still queued" not in text, text
    assert f"PLAIT_TIMEOUT is '{limit}': expected seconds, 60 are taken" in text


@pytest.mark.long(keep=1)
@pytest.mark.parametrize("limit", ["1e400", "1e12", "inf"])
def test_a_time_limit_longer_than_any_job(limit):
    code, text = run("print(plait.allreduce(jnp.ones(2), plait.SUM))", PLAIT_TIMEOUT=limit)
    assert code == 0 and "[1. 1.]" in text and "PLAIT_TIMEOUT" not in text, text


CAUGHT = """
from jax.sharding import AxisType, NamedSharding, PartitionSpec as P
mesh = jax.make_mesh((2,), ("x",), axis_types=(AxisType.Auto,))
f = {jit}(lambda k: plait.linalg.cholesky(k, mesh=mesh, spec=P("x"), check=True).logdet())
try:
    plait.block(f(jax.device_put(-jnp.eye(4), NamedSharding(mesh, P("x")))))
except plait.LinAlgError as error:
    print("caught:", error)
"""


@pytest.mark.long(keep=1)
@pytest.mark.parametrize("jit", ["plait.jit", "jax.jit"])
def test_a_failure_that_was_caught_is_not_said_again_at_exit(jit):
    code, text = run(CAUGHT.format(jit=jit), JAX_NUM_CPU_DEVICES="2")
    assert code == 0 and "caught: cholesky: the leading minor of order 1 is not" in text, text
    assert "Exception ignored" not in text and "did not look at" not in text, text


CALLBACK = """
import numpy as np
from jax.sharding import AxisType, PartitionSpec as P
mesh = jax.make_mesh((2,), ("x",), axis_types=(AxisType.Auto,))

def fails(x):
    raise ValueError("a callback's")

def part(x):
    jax.debug.callback(lambda x: None, x[0])
    return jax.pure_callback(fails, x, x)

f = jax.shard_map(part, mesh=mesh, in_specs=P("x"), out_specs=P("x"), check_vma=False)
try:
    print(np.asarray(jax.jit(f)(jnp.ones(4))))
except Exception as error:
    print("caught", type(error).__name__)
"""


def test_a_callback_that_fails_leaves_the_exit_code_to_the_program():
    """The program's exit code is that without plait."""
    code, text = run(CALLBACK, JAX_NUM_CPU_DEVICES="2")
    assert code == 0 and "caught" in text and "did not look at" not in text, text


class Failed:
    """Acts as an array whose program has failed."""

    def __init__(self, text):
        self.text = text

    def block_until_ready(self):
        raise RuntimeError(self.text)


def test_at_exit_failures_of_operations_are_said_and_no_others(monkeypatch):
    """Nobody knows whether the program caught one of XLA's own failures, say for want of memory."""
    ours, other = "plait.CommError: a test of what nobody has seen", "RESOURCE_EXHAUSTED: XLA's"
    monkeypatch.setattr(_queues, "arrays", lambda: [Failed(other), Failed(ours)])
    assert [str(error) for error in _exit.flush()] == [ours]


PEER = "plait.PeerError: rank {} of communicator #{}, cholesky: waits in vain: rank 2 has ended"
GAVE_UP = (
    "plait.PeerError: rank {} of communicator #{}, cholesky: rank 1 has given up this communicator"
)


@pytest.mark.parametrize(("first", "then"), [(PEER, GAVE_UP), (GAVE_UP, PEER), (GAVE_UP, GAVE_UP)])
def test_of_two_devices_one_may_see_that_the_other_gave_up(monkeypatch, first, then):
    """It is chance which of the two failures the program catches."""
    monkeypatch.setattr(_errors, "_seen", {})
    monkeypatch.setattr(_errors, "_seen_of", {})
    assert jax.local_device_count() > 1
    _errors.named(RuntimeError(first.format(0, 2)))
    assert _errors.was_raised(then.format(1, 2))
    assert not _errors.was_raised(then.format(1, 3)), "of another communicator"
    other = PEER.format(1, 2).replace("has ended", "raised ValueError")
    assert _errors.was_raised(other) == (first == GAVE_UP)


NO_THREADS = """
import atexit, threading
def refuse(thread):
    raise RuntimeError("can't create new thread at interpreter shutdown")
atexit.register(setattr, threading.Thread, "start", refuse)  # before plait's own, which came first
"""


def test_pythons_that_start_no_thread_at_exit():
    code, text = run(FAILS + NO_THREADS)
    assert code != 0 and "CommError" in text and "shutdown" not in text
    code, text = run("y = plait.allreduce(jnp.ones(3), plait.SUM)" + NO_THREADS)
    assert code == 0 and not text, text


def test_a_failure_that_was_handled_does_not():
    code, text = run(FAILS + "try:\n    plait.block(y)\nexcept plait.CommError:\n    pass\n")
    assert code == 0, text


def test_launcher_of_another_mpi():
    code, text = run("plait.Comm()", OMPI_COMM_WORLD_SIZE="2")
    if "two MPI distributions" in text:
        pytest.skip("two MPIs in this environment")
    assert code != 0
    assert "the launcher" in text and "OMPI_COMM_WORLD_SIZE" in text


def test_no_mpi_is_called_without_a_launcher():
    code, text = run("plait.barrier(); assert 'mpi4py' not in sys.modules")
    assert code == 0, text


def test_an_interrupt_waits_until_a_communicator_is_made(monkeypatch):
    """The ranks make the duplicates in one order: no rank may begin again."""
    numbers, add = [], _core.add_self

    def add_and_interrupt(label):
        numbers.append(add(label))
        if len(numbers) == 2:
            signal.raise_signal(signal.SIGINT)
        return numbers[-1]

    monkeypatch.setattr(_comm, "_worlds", [])
    monkeypatch.setattr(_comm._world, "mpi", lambda: None)
    monkeypatch.setattr(_core, "add_self", add_and_interrupt)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            plait.Comm()
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
        comm = plait.Comm()
        assert comm.id() == numbers[0] and len(numbers) == 4
        comm.free()
    finally:
        signal.signal(signal.SIGINT, before)


def test_a_rank_that_raises_ends_the_job():
    mpiexec = shutil.which("mpiexec", path=os.path.dirname(sys.executable))
    if mpiexec is None:
        pytest.skip("no mpiexec beside this Python")
    program = """
comm = plait.Comm()
plait.barrier()
if comm.rank == 1:
    print("raised at", time.time(), flush=True)
    raise RuntimeError("boom")
plait.barrier()
"""
    code, text = run(program, mpiexec, "-n", "2")
    assert code != 0 and "boom" in text and "rank 1 ends the job" in text
    raised = float(text.split("raised at ")[1].split()[0])
    assert time.time() - raised < 10


class MuteError(Exception):
    def __str__(self):
        raise RuntimeError("no text")


class Broken(io.StringIO):
    def write(self, text):
        raise OSError("No space left on device")

    flush = None


@pytest.mark.parametrize("stream", [io.StringIO(), Broken(), None])
@pytest.mark.parametrize(
    ("value", "why"),
    [
        (ValueError("boom"), "ValueError: boom"),
        (ValueError("no data-\udcff.bin"), "ValueError: no data-\\udcff.bin"),
        (MuteError(), f"{__name__}.MuteError"),
        (_errors.PeerError("gone"), "plait.PeerError: gone"),
    ],
)
def test_a_failure_that_cannot_be_shown_is_one(monkeypatch, stream, value, why):
    """Other ranks would wait for ever for a rank that ends without MPI_Abort."""
    monkeypatch.setattr(_exit, "_world", [(1, 2)])
    monkeypatch.setattr(_exit, "_failed", [])
    monkeypatch.setattr(_exit, "_why", [])
    monkeypatch.setattr(_core.lib, "plait_trace_set_why", lambda text: None)
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setattr(sys, "__stderr__", stream)

    def show():
        assert _exit._failed
        raise OSError("a hook of the program's own")

    _exit._report(value, show)
    assert _exit._why[-1].endswith(why) and _exit._why[-1].encode()


@pytest.mark.parametrize("broken", ["", "_note_leaving", "_say_farewell", "_wait_for_the_launcher"])
def test_every_failed_rank_comes_to_mpi_abort(monkeypatch, broken):
    codes = []

    class End(BaseException):
        pass

    class Mpi:
        Is_finalized = staticmethod(lambda: False)

        COMM_WORLD = types.SimpleNamespace(Abort=codes.append)

    def end(code):
        raise End(code)

    for name, answer in (("_note_leaving", None), ("_say_farewell", True)):
        monkeypatch.setattr(_exit, name, lambda _, answer=answer: answer)
    monkeypatch.setattr(_exit, "_wait_for_the_launcher", lambda: None)
    if broken:
        monkeypatch.setattr(_exit, broken, lambda *_: 1 / 0)
    monkeypatch.delenv("PLAIT_RUN_JOB", raising=False)
    monkeypatch.setattr(_exit, "_mpi", [Mpi])
    monkeypatch.setattr(_exit, "_exit_code", [7])
    monkeypatch.setattr(_core.lib, "plait_guard_leave", lambda _: None)
    monkeypatch.setattr(sys, "stdout", Broken())
    monkeypatch.setattr(os, "_exit", end)
    with pytest.raises(End, match="7"):
        _exit._abort()
    assert codes == [7]


def test_a_launcher_that_reads_late_has_all_that_was_printed():
    program = """
import os, sys
from plait import _exit
_exit._PASS_ON_S = 60
os.write(1, b"ready")
os.write(1, b"the traceback")
_exit._wait_for_the_launcher()
os._exit(0)
"""
    env = os.environ | {"PYTHONPATH": PACKAGE, "JAX_PLATFORMS": "cpu"}
    with subprocess.Popen([sys.executable, "-c", program], env=env, stdout=subprocess.PIPE) as rank:
        assert os.read(rank.stdout.fileno(), 5) == b"ready"
        time.sleep(1)
        assert rank.poll() is None
        assert rank.stdout.read() == b"the traceback"
        assert rank.wait(30) == 0


HOOKED = """
def hook(kind, value, tb):
    print("their own:", value, flush=True)
    {before}
before = sys.excepthook
if {is_early}:
    sys.excepthook = hook
comm = plait.Comm()
plait.barrier()
if not {is_early}:
    sys.excepthook = hook
if comm.rank == 1:
    raise RuntimeError("boom")
plait.barrier()
"""


@pytest.mark.long(keep=1)
@pytest.mark.parametrize("before", ["pass", "before(kind, value, tb)", "raise ValueError"])
@pytest.mark.parametrize("is_early", [True, False])
def test_hooks_of_the_program(is_early, before):
    pytest.importorskip("mpi4py")
    launcher = (sys.executable, "-m", "plait", "run", "-n", "2")
    code, text = run(HOOKED.format(is_early=is_early, before=before), *launcher)
    assert code != 0 and text.count("their own: boom") == 1, text
    assert "rank 1: raised RuntimeError: boom" in text, text


def test_a_rank_that_had_left_in_order_did_not_abort():
    pytest.importorskip("mpi4py")
    program = "comm = plait.Comm()\nplait.barrier()\nif comm.rank == 0:\n    plait.barrier()"
    code, text = run(program, sys.executable, "-m", "plait", "run", "-n", "2")
    assert code != 0 and "rank 1 had left its program" in text, text
    assert "without saying how" not in text, text


def test_a_stream_that_waits_in_vain_ends_the_process():
    mpiexec = shutil.which("mpiexec", path=os.path.dirname(sys.executable))
    if mpiexec is None:
        pytest.skip("no mpiexec beside this Python")
    program = """
from plait import _core
_core.has_devices = lambda: True
_core.keep_vigil = lambda: "rank 0: its stream waits in vain: rank 1: process 7 has ended"
plait.Comm()
time.sleep(300)
"""
    code, text = run(program, mpiexec, "-n", "2")
    assert code != 0 and "PeerError: rank 0: its stream waits in vain" in text, text


def test_forked_child_is_refused():
    code, text = run(
        "import os\nplait.barrier()\npid = os.fork()\n"
        "if pid == 0:\n"
        "    try:\n        plait.barrier()\n"
        "    except plait.CommError as e:\n        print(e, flush=True)\n"
        "    os._exit(0)\n"
        "os.waitpid(pid, 0)"
    )
    assert code == 0 and "forked" in text, text


MPI4PY = "-m", "mpi4py"


FORKS = """
import os, signal, warnings
warnings.simplefilter("ignore")
signal.alarm(60)  # the rank's; children inherit none
def is_parent(code):
    if os.fork() == 0:
        signal.alarm(20)
        return False
    assert os.waitstatus_to_exitcode(os.wait()[1]) == code
    return True
path = sys.argv[0] + str(plait.Comm().rank)
for kind in ["mpi", "jax"]:
    if not is_parent(7):
        sys.exit(7)
    if not is_parent(1):
        raise ValueError("of a child")
    if not is_parent(0):
        unclosed = open(path, "w")
        unclosed.write(kind)
        break
    assert open(path).read() == kind
    print(plait.allreduce(jnp.ones(2), plait.SUM).tolist())
"""


@pytest.mark.parametrize("run", [MPI4PY, ()], ids=["mpi4py", "plain"])
def test_a_forked_child_leaves_without_its_parents_mpi(run, tmp_path):
    code, text = run_on_two(FORKS, tmp_path, *run)
    assert code == 0 and text.count("[2.0, 2.0]") == 4, text
    assert text.count("ValueError: of a child") == 4, text


LEAVES = """
import pickle
import threading
plait.barrier()
thread = threading.Thread(target=sys.exit, args=(4,))
thread.start()
thread.join()
try:
    sys.exit(5)
except SystemExit as error:
    assert error.code == 5 and error.args == (5,)
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is SystemExit and again.code == 5
if plait.Comm().rank == 1:
    sys.exit(3)
plait.block(plait.allreduce(jnp.ones(2), plait.SUM))
"""


def test_a_rank_of_plain_python_leaves_with_a_code(tmp_path):
    code, text = run_on_two(LEAVES, tmp_path)
    assert code == 3 and "rank 1: raised SystemExit: 3" in text, text


SPAWNS = """
import multiprocessing
import subprocess
def use(i):
    try:
        return str(plait.Comm())
    except plait.CommError as error:
        return str(error)
if __name__ == "__main__":
    plait.barrier()
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        print(pool.map_async(use, range(1)).get(60))
    program = [sys.executable, "-c", "import plait; print(plait.Comm().size, 'in a job')"]
    for is_closed in (True, False):
        done = subprocess.run(program, capture_output=True, text=True, close_fds=is_closed)
        print(done.returncode, done.stdout, done.stderr)
    print(subprocess.check_output([sys.executable, "-m", "plait", "run", "-n", "2", *program]))
    plait.barrier()
"""


def test_a_spawned_child_has_no_communicator(tmp_path):
    """Nor has another program that a rank starts; a job that it starts has one."""
    code, text = run_on_two(SPAWNS, tmp_path, *MPI4PY)
    assert code == 0 and text.count("not a rank of the launcher's") == 6, text
    assert text.count("2 in a job") == 4, text


RAISES_IN_JAX = """
comm = plait.Comm()
plait.barrier()
if comm.rank == 1:
    jax.jit(lambda x: x @ jnp.ones(3))(jnp.ones(4))
plait.block(plait.allreduce(jnp.ones(4), plait.SUM))
"""


AFTER_FINALIZE = """
from mpi4py import MPI
assert plait.allreduce(jnp.ones(4), plait.SUM)[0] == MPI.COMM_WORLD.size
MPI.Finalize()
"""


@pytest.mark.long(keep=1)
@pytest.mark.parametrize(
    "end, code, said",
    [
        ("", 0, ""),
        ("sys.exit(3)", 3, ""),
        ("raise ValueError('over')", 1, "ValueError: over"),
    ],
)
def test_a_program_that_finalizes_mpi_itself(end, code, said, tmp_path):
    found, text = run_on_two(AFTER_FINALIZE + end, tmp_path, *MPI4PY)
    assert found == code, text
    assert said in text and "after finalizing" not in text


def test_peers_are_told_the_exception_and_not_what_jax_notes_of_it(tmp_path):
    """JAX adds a note to exceptions that pass through it: the last line that Python prints."""
    _, text = run_on_two(RAISES_IN_JAX, tmp_path, *MPI4PY)
    assert "rank 1: raised TypeError: dot_general requires contracting" in text, text
