"""plait.config on ranks: the meaning of each backend, and ranks that choose differently."""

import os

import jax
import jax.numpy as jnp
import meshes
import numpy as np
import plait
import pytest
from jax.sharding import PartitionSpec as P
from plait import _core
from spread import put, same

BACKEND = "transpose_comm_backend"


@pytest.fixture
def transform():
    """A compiled transform, its operand, and the result."""
    n = jax.device_count()
    a = meshes.random((4 * n, 4 * n, 6), "complex128")
    x = put(a, meshes.make((n,)), P("a"))
    f = plait.jit(plait.fft.pfft3d)
    plait.block(f(x))
    return f, x, np.fft.fftn(a)


def has_direct(world):
    return not plait.Comm(world).direct.startswith("off")


def plan_used(f, x):
    _core.trace_start(True)
    try:
        plait.block(f(x))
        return _core.trace()[-1]
    finally:
        _core.trace_start(False)


def test_every_backend_gives_the_same(transform, world):
    f, x, whole = transform
    for backend in ("auto", "MPI", "NODE") if has_direct(world) else ("auto", "MPI"):
        with plait.config.set(transpose_comm_backend=backend, halo_comm_backend=backend):
            assert (f"{BACKEND} {backend}" in plan_used(f, x)) == (backend != "auto")
            same(f(x), whole, 1e-11)
            same(plait.redistribute(x, P(None, "a")), np.asarray(plait_whole(x)), 0)
            padded = plait.halo.pad(x, (1, 0, 0))
            same(plait.halo.unpad(padded, (1, 0, 0)), np.asarray(plait_whole(x)), 0)
    assert f._cache_size() == 1


def plait_whole(x):
    return plait.redistribute(x, P()).addressable_data(0)


def test_node_needs_direct_access(transform, world):
    f, x, _ = transform
    if has_direct(world):
        pytest.skip("there is direct access")
    with plait.config.set(transpose_comm_backend="NODE"), pytest.raises(plait.Error) as caught:
        plait.block(f(x))
    assert plait.Comm(world).direct in str(caught.value)
    assert "choose auto or MPI" in str(caught.value)


def test_changes_on_all_ranks_need_no_waiting(transform):
    """The place in the program decides, even if some ranks are ahead with their calls."""
    f, x, whole = transform
    for i in range(20):
        y = f(f(x))
        plait.config.update(BACKEND, ("MPI", "auto")[i % 2])
        z = f(x)
        same(z, whole, 1e-11)
    plait.block(y)


@pytest.mark.parametrize("last", [False, True])
def test_ranks_that_choose_differently(transform, world, last):
    f, x, whole = transform
    if world.size == 1:
        pytest.skip("needs two ranks")
    if plait.Comm(world).transport == "mpi" and os.environ.get("PLAIT_CHECK") != "full":
        pytest.skip("ranks that meet through MPI alone agree on a plan once")
    alone = world.size - 1 if last else 0
    if world.rank == alone:
        plait.config.update(BACKEND, "MPI")
    try:
        with pytest.raises(plait.MismatchError) as caught, plait.errors():
            plait.block(jax.jit(plait.fft.pfft3d)(jnp.copy(x)))
        assert f"rank {alone}: fft ({BACKEND} MPI)" in str(caught.value)
    finally:
        plait.config.update(BACKEND, "auto")
    world.Barrier()
    same(f(x), whole, 1e-11)
