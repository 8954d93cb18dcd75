"""Programs called whose results nobody has read yet: at exit, when MPI ends, in threads."""

import pytest
from programs import run_on_two

# The last rank computes longer, and has left main by then.
DROPPED = """
comm = plait.Comm()
long = jax.jit(lambda x: jax.lax.fori_loop(0, 50_000, lambda _, v: v / 2 + jnp.cos(v), x))
add = plait.jit(lambda x: plait.allreduce(x, plait.SUM))
other = plait.jit(lambda x: plait.allreduce(x, plait.MAX if comm.rank else plait.SUM))
plait.block(add(jnp.ones(1024)))

def main():
    x = long(jnp.ones(1024))
    {called}(long(x) if comm.rank else x)

main()
print("main is over", flush=True)
"""


@pytest.mark.parametrize("called, said", [("add", ""), ("other", "MismatchError")])
def test_results_that_nobody_holds_are_waited_for(called, said, tmp_path):
    code, text = run_on_two(DROPPED.format(called=called), tmp_path)
    assert text.count("main is over") == 2, text
    assert ("results that were dropped: plait.MismatchError" in text) == bool(said), text
    assert code == 0 and "PeerError" not in text, text


FAILED = """
jax.config.update("jax_num_cpu_devices", 2)
jax.distributed.initialize(cluster_detection_method="mpi4py")
from jax.sharding import AxisType, NamedSharding, PartitionSpec as P
mesh = jax.make_mesh((4,), ("x",), axis_types=(AxisType.Auto,))
x = jax.make_array_from_callback(
    (64, 64), NamedSharding(mesh, P("x")), lambda i: (-jnp.eye(64))[i]
)
plait.jit(lambda x: plait.linalg.cholesky(x, mesh=mesh, check=True))(x)
print("main is over", flush=True)
"""


def test_a_failure_among_jaxs_tokens_is_said_once(tmp_path):
    """JAX raises the failure after its own handlers have begun to end, which ends in a signal.

    Rank 0 has JAX's coordinator, whose end may end the other rank by a signal before it speaks.
    """
    code, text = run_on_two(FAILED, tmp_path)
    assert code == 1 and text.count("main is over") == 2, text
    ranks = [line[:3] for line in text.splitlines() if "did not look at" in line]
    assert len(set(ranks)) == len(ranks) and "Exception ignored" not in text, text
    assert "[0]" in ranks and "rank 0 exited with code 1" in text, text


AGAIN = """
comm = plait.Comm()
late = jax.jit(lambda x: x + 0 * jax.lax.fori_loop(0, 30_000, lambda _, v: v / 2 + jnp.cos(v), x))
bad = plait.jit(lambda x: plait.allreduce(x, plait.MAX if comm.rank else plait.SUM))
for _ in range(2):
    try:
        plait.block(bad(late(jnp.ones(1024))))
    except plait.MismatchError:
        print("caught", flush=True)
{then}
"""


@pytest.mark.parametrize("then, n_said", [("", 0), ("y = bad(late(late(jnp.ones(1024))))", 2)])
def test_a_failure_in_the_words_of_one_that_was_caught(then, n_said, tmp_path):
    code, text = run_on_two(AGAIN.format(then=then), tmp_path)
    assert text.count("caught") == 4 and text.count("did not look at") == n_said, text
    assert code == (1 if n_said else 0), text


ENDED = """
from mpi4py import MPI
comm = MPI.COMM_WORLD.Dup()
long = jax.jit(lambda x: jax.lax.fori_loop(0, 50_000, lambda _, v: v / 2 + jnp.cos(v), x))
add = plait.jit(lambda x: plait.allreduce(x, plait.SUM, comm=comm))
plait.block(add(jnp.ones(1024)))
x = jnp.full(1024, comm.rank + 1.0)
y = add(x + 0 * long(x) if comm.rank == 1 else x)
{end}
print("got", y[0], flush=True)
{then}
"""
AFTER = """
try:
    plait.block(add(x))
except plait.CommError:
    print("and no more", flush=True)
"""


@pytest.mark.parametrize(
    "end, then", [("comm.Free()", AFTER), ("MPI.Finalize()", "")], ids=["Free", "Finalize"]
)
def test_what_is_queued_is_done_before_mpi_ends(end, then, tmp_path):
    code, text = run_on_two(ENDED.format(end=end, then=then), tmp_path)
    assert code == 0 and text.count("got 3.0") == 2, text
    assert text.count("and no more") == (2 if then else 0), text


# Each thread has its own communicator; the last rank begins them in the opposite order.
THREADS = """
{setting}
import threading
from mpi4py import MPI
n = 3
comms = [plait.Comm(MPI.COMM_WORLD.Dup()) for _ in range(n)]
rank, is_late = comms[0].rank, {is_late}
long = jax.jit(lambda x: jax.lax.fori_loop(0, 60_000, lambda _, v: v / 2 + jnp.cos(v), x))

def made(comm):
    def add(x):
        return plait.allreduce(x if is_late else 0 * long(x) + x, plait.SUM, comm=comm)

    return {kind}(add)

adds = [made(comm) for comm in comms]
for f in (long, *adds):
    plait.block(f(jnp.ones(1024)))
MPI.COMM_WORLD.Barrier()

def use(i):
    time.sleep(0.3 * (n - 1 - i if rank else i))
    x = jnp.full(1024, rank + 1.0)
    x = x + 0 * long(x) if is_late else x
    for _ in range(3):
        assert plait.block(adds[i](x))[0] == 3
    print(f"right: {{i}}", flush=True)

threads = [threading.Thread(target=use, args=(i,)) for i in range(n)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
"""
IN_CALLERS = 'jax.config.update("jax_cpu_enable_async_dispatch", False)'


@pytest.mark.long(keep=2)
@pytest.mark.parametrize(
    "kind, is_late, setting, n_threads",
    [
        pytest.param("plait.jit", True, "", 1, id="late"),
        pytest.param("", True, "", 1, id="late and eager"),
        pytest.param("plait.jit", False, IN_CALLERS, 1, id="in their callers"),
        pytest.param("plait.jit", False, "", 4, id="enough"),
    ],
)
def test_threads_with_communicators_of_their_own(kind, is_late, setting, n_threads, tmp_path):
    program = THREADS.format(kind=kind, is_late=is_late, setting=setting)
    code, text = run_on_two(program, tmp_path, NPROC=str(n_threads), PLAIT_TIMEOUT="20")
    assert code == 0 and text.count("right: ") == 6, text


def test_more_threads_than_xla_has_are_told(tmp_path):
    """The programs here are such that XLA runs them on threads of its own."""
    program = THREADS.format(kind="plait.jit", is_late=False, setting="")
    code, text = run_on_two(program, tmp_path, NPROC="1", PLAIT_TIMEOUT="3")
    assert code == 1 and "threads of this process have called operations, and XLA runs" in text
    assert "set NPROC=" in text, text


# Each call returns before another thread calls; on one rank every second operand is late.
IN_TURN = """
from concurrent.futures import ThreadPoolExecutor
comm = plait.Comm()
late = jax.jit(lambda x: x + 0 * jax.lax.fori_loop(0, 30_000, lambda _, v: v / 2 + jnp.cos(v), x))
add = plait.jit(lambda x: plait.allreduce(x, plait.SUM))
def eager(x):
    return plait.allreduce(x, plait.SUM)

xs = [plait.block(jnp.full(1024, (comm.rank + 1.0) * (k + 1))) for k in range(12)]
plait.block(add(late(xs[0])))
pools, sums = [ThreadPoolExecutor(1) for _ in range(2)], []
def step(k):
    f = {of_third} if k % 3 == 2 else add
    sums.append(f(late(xs[k]) if comm.rank == 0 and k % 2 == 0 else xs[k]))

for k in range(12):
    if {by_main} and k % 2:
        step(k)
    else:
        pools[k % 2].submit(step, k).result()
print("right:", [float(plait.block(y)[0]) for y in sums] == [3.0 * (k + 1) for k in range(12)])
"""


@pytest.mark.long(keep=1)
@pytest.mark.parametrize("by_main, of_third", [(False, "add"), (True, "add"), (False, "eager")])
def test_threads_that_call_in_turn_on_one_communicator(by_main, of_third, tmp_path):
    """Each thread has its own queue: programs with ready operands would overtake waiting ones."""
    program = IN_TURN.format(by_main=by_main, of_third=of_third)
    code, text = run_on_two(program, tmp_path, NPROC="8")
    assert code == 0 and text.count("right: True") == 2, text


SHARED = """
import functools, threading
from mpi4py import MPI
comms = [plait.Comm(MPI.COMM_WORLD.Dup()) for _ in range(2)]
rank = comms[0].rank
late = jax.jit(lambda x: x + 0 * jax.lax.fori_loop(0, 60_000, lambda _, v: v / 2 + jnp.cos(v), x))
@functools.partial(plait.jit, static_argnames="comm")
def add(x, comm):
    return plait.allreduce(x, plait.SUM, comm=comm)

for comm in comms:
    plait.block(add(late(jnp.ones(1024)), comm))
MPI.COMM_WORLD.Barrier()

def use(i):
    time.sleep(0.3 * (1 - i if rank else i))
    y = [add(late(jnp.full(1024, rank + 1.0)), comms[i]) for _ in range(3)]
    assert all(plait.block(v)[0] == 3 for v in y)
    print(f"right: {i}", flush=True)

threads = [threading.Thread(target=use, args=(i,)) for i in range(2)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
"""


def test_threads_that_share_a_program_for_communicators_of_their_own(tmp_path):
    code, text = run_on_two(SHARED, tmp_path, NPROC="8", PLAIT_TIMEOUT="20")
    assert code == 0 and text.count("right: ") == 4, text
