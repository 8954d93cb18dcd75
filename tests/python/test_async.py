"""Operations that complete after their handler has returned, on a thread of plait."""

import os
import pathlib
import subprocess
import sys

import jax
import jax.numpy as jnp
import meshes
import numpy as np
import plait
import programs
import pytest
from jax.sharding import PartitionSpec as P
from plait import _core

HERE = pathlib.Path(__file__).parent
N = 200_000  # elements of float64: more than XLA's own thread handles


def run(setting, *command):
    """Run Python with PLAIT_ASYNC set, on arrays in host memory."""
    environment = os.environ | {"PLAIT_ASYNC": setting, "PLAIT_LOG": "warn"}
    environment |= {"JAX_PLATFORMS": "cpu", "PLAIT_TEST_PLATFORM": "cpu"}
    return subprocess.run(
        [sys.executable, *command],
        env=environment,
        cwd=HERE.parents[1],
        capture_output=True,
        text=True,
        timeout=280,
    )


@pytest.mark.long
@pytest.mark.parametrize(("setting", "chosen"), [("0", "not any_token"), ("off", "program")])
def test_order_whatever_the_size(setting, chosen):
    """The tests of program order, with every operation on another thread, and with none."""
    tests = ["-m", "pytest", "-q", "-p", "no:cacheprovider", HERE / "test_order.py", "-k", chosen]
    done = run(setting, *tests)
    assert done.returncode == 0 and " passed" in done.stdout, done.stdout


def test_setting_that_is_none():
    program = "import plait, jax.numpy as jnp; plait.allreduce(jnp.ones(3), plait.SUM)"
    done = run("often", "-c", program)
    assert "PLAIT_ASYNC is 'often': expected off or a number of bytes" in done.stderr
    for setting in ("123", "OFF"):
        assert run(setting, "-c", program).stderr.count("PLAIT_ASYNC") == 0


def threads_of(run):
    """The threads that the operations of a program ran on."""
    _core.trace_start(True)
    plait.block(run())
    lines = _core.trace()
    _core.trace_start(False)
    return [line.split()[0] for line in lines]


def test_large_operations_run_elsewhere():
    """Large operations use other threads, and are right whichever device's handler comes first."""
    mesh = meshes.make((4,))

    def f(v):
        for _ in range(3):
            v = plait.allreduce(v, plait.SUM, comm="a") / 4
        return v

    g = jax.jit(jax.shard_map(f, mesh=mesh, in_specs=P("a"), out_specs=P(), check_vma=False))
    x = meshes.put(np.tile(np.arange(float(N)), 4), mesh, P("a"))
    for _ in range(10):
        assert np.array_equal(g(x), np.arange(float(N)))
    alone = jax.jit(lambda v: plait.allreduce(v, plait.SUM))
    plait.block(alone(jnp.ones(3)))
    ours = set(threads_of(lambda: g(x)))
    assert ours.isdisjoint(threads_of(lambda: alone(jnp.ones(3))))


def test_programs_follow_each_other():
    """Large and small programs dispatched without waiting, and programs with a visible effect."""
    ones = {n: jnp.ones(n) for n in (3, N + 1, 5, N + 2)}
    hidden = plait.jit(lambda x: plait.allreduce(x, plait.SUM))
    visible = jax.jit(lambda x: plait.allreduce(x, plait.SUM))
    [f(x).block_until_ready() for x in ones.values() for f in (hidden, visible)]
    for _ in range(5):
        _core.trace_start(True)
        results = [f(x) for x in ones.values() for f in (hidden, visible)]
        plait.block(results)
        lines = _core.trace()
        _core.trace_start(False)
        order = [int(line.split("[")[1].split("]")[0]) for line in lines]
        assert order == [n for n in ones for _ in range(2)]


@pytest.mark.parametrize("n_threads", [2, 16])
def test_beside_collectives_of_xla(n_threads):
    """No operation waits for other devices on a thread that has more work from XLA."""
    program = f"sys.path.insert(0, {str(HERE)!r}); import beside, meshes\n"
    program += "beside.check([0, 1, 2, 3], meshes.make((4,)), 0)"
    code, output = programs.run(
        program, NPROC=str(n_threads), JAX_NUM_CPU_DEVICES="4", JAX_ENABLE_X64="1"
    )
    assert code == 0, output


def test_failure_is_named():
    comm = plait.Comm().id()
    x = jnp.arange(float(N))

    def wrong(x):
        like = jax.ShapeDtypeStruct(x.shape, jnp.float32)
        return jax.ffi.ffi_call("plait_allreduce", like)(x, reduce=0, comm=comm)

    text = f"rank 0 of communicator #{comm}, allreduce: .*operand is float64, result is float32"
    for size in (3, N):
        with pytest.raises(plait.Error, match=text), plait.errors():
            jax.block_until_ready(jax.jit(wrong)(x[:size]))
    assert np.array_equal(plait.allreduce(x, plait.SUM), x)
