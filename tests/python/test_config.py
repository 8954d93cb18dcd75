"""plait.config: keys, values, environment, and its effect on compiled programs."""

import os
import subprocess
import sys

import jax
import jax.numpy as jnp
import meshes
import numpy as np
import plait
import pytest
from jax.sharding import PartitionSpec as P
from plait import _core

BACKENDS = ("transpose_comm_backend", "halo_comm_backend")
DEFAULTS = {
    **dict.fromkeys(BACKENDS, "auto"),
    "transpose_exchange": "fused",
    "dense_backend": "auto",
}


@pytest.fixture(autouse=True)
def restored():
    before = plait.config.read()
    yield
    plait.config.set(**before)


def test_keys_and_defaults():
    assert plait.config.read() == DEFAULTS
    assert set(DEFAULTS) <= set(dir(plait.config))
    for name, key in _core.keys().items():
        assert key.choices[0] == DEFAULTS[name] and key.variable == "PLAIT_" + name.upper()
        assert key.doc
    assert "transpose_exchange='fused'" in repr(plait.config)


@pytest.mark.parametrize("name", BACKENDS)
@pytest.mark.parametrize("value", ["MPI", "mpi", "Node", "AUTO"])
def test_update_takes_any_letter_case(name, value):
    plait.config.update(name.upper(), value)
    want = {"mpi": "MPI", "node": "NODE", "auto": "auto"}[value.lower()]
    assert getattr(plait.config, name) == want
    setattr(plait.config, name, "auto")
    assert plait.config.read() == DEFAULTS


def test_set_is_all_or_nothing_and_a_context():
    with plait.config.set(transpose_comm_backend="MPI", halo_comm_backend="NODE"):
        assert plait.config.transpose_comm_backend == "MPI"
        assert plait.config.halo_comm_backend == "NODE"
        with pytest.raises(ZeroDivisionError), plait.config.set(halo_comm_backend="MPI"):
            raise ZeroDivisionError
        assert plait.config.halo_comm_backend == "NODE"
    assert plait.config.read() == DEFAULTS
    with pytest.raises(ValueError, match="expected one of auto, MPI"):
        plait.config.set(transpose_comm_backend="MPI", halo_comm_backend="shmem")
    assert plait.config.read() == DEFAULTS
    plait.config.set(transpose_comm_backend="MPI")
    assert plait.config.transpose_comm_backend == "MPI"


def test_a_block_in_a_traced_function_is_refused():
    def f(x):
        with plait.config.set(transpose_comm_backend="MPI"):
            return 2 * x

    for staged in (jax.jit(f), lambda x: jax.lax.map(f, x[None])):
        with pytest.raises(plait.Error, match="expected around the call"):
            staged(jnp.ones(3))
        assert plait.config.read() == DEFAULTS
    assert jax.grad(lambda x: f(x).sum())(jnp.ones(3)).tolist() == [2.0, 2.0, 2.0]
    assert plait.config.read() == DEFAULTS


@pytest.mark.parametrize(
    "choose",
    [
        lambda: plait.config.update("halo_comm_backend", "MPI"),
        lambda: plait.config.set(halo_comm_backend="MPI"),
        lambda: setattr(plait.config, "halo_comm_backend", "MPI"),
    ],
)
def test_a_choice_in_a_traced_function_is_refused(choose):
    def f(x):
        choose()
        return x

    with pytest.raises(plait.Error, match="expected around the call"):
        jax.jit(f)(jnp.ones(3))
    assert plait.config.read() == DEFAULTS


def test_a_choice_that_is_kept_may_be_used_again():
    choice = plait.config.set(halo_comm_backend="MPI")
    for _ in range(2):
        with choice:
            assert plait.config.halo_comm_backend == "MPI"
        assert plait.config.read() == DEFAULTS


def test_a_choice_in_a_callback_waits_for_its_program_within_the_limit():
    program = """
import jax, jax.numpy as jnp, plait, time
from jax.sharding import PartitionSpec as P
def choose(x):
    time.sleep(0.5)  # until the caller has its array
    try:
        plait.config.update("halo_comm_backend", "MPI")
    except plait.TimeoutError as error:
        print(error)
@jax.jit
def f(x):
    y = plait.fft.pfft3d(x, mesh=mesh, spec=P("x"))
    jax.debug.callback(choose, y[0, 0, 0].real)
    return plait.fft.pifft3d(y, mesh=mesh, spec=P(None, "x"))
mesh = jax.make_mesh((2,), ("x",), axis_types=(jax.sharding.AxisType.Auto,))
x = jax.device_put(jnp.ones((4, 4, 4)), jax.sharding.NamedSharding(mesh, P("x")))
f(x).block_until_ready()
jax.effects_barrier()
"""
    done = subprocess.run(
        [sys.executable, "-c", program],
        env=os.environ
        | {"PLAIT_TIMEOUT": "0.5", "JAX_PLATFORMS": "cpu", "JAX_NUM_CPU_DEVICES": "2"},
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert (
        "have not ended after 0.5 s (PLAIT_TIMEOUT); do not call plait.config in" in done.stdout
    ), done


def test_errors_list_what_there_is():
    with pytest.raises(ValueError, match="no key '3'"):
        plait.config.update(3, "MPI")
    with pytest.raises(ValueError, match="given twice"):
        plait.config.set(halo_comm_backend="MPI", HALO_COMM_BACKEND="auto")
    with pytest.raises(ValueError, match="no key 'backend'.*transpose_comm_backend, halo_comm"):
        plait.config.update("backend", "MPI")
    with pytest.raises(ValueError, match="'UCX'; expected one of auto, MPI, NODE, NCCL, NVSHMEM"):
        plait.config.update("halo_comm_backend", "UCX")
    with pytest.raises(ValueError, match="no key 'foo'; expected one of transpose_comm_backend"):
        plait.config.set(foo=1)
    with pytest.raises(ValueError, match=r"backend: 'MPI\\x00junk'; expected one of auto, MPI"):
        plait.config.update("halo_comm_backend", "MPI\0junk")
    with pytest.raises(TypeError, match="int; expected one of auto"):
        plait.config.update("halo_comm_backend", 1)
    with pytest.raises(AttributeError, match="no key 'backend'"):
        _ = plait.config.backend
    for value in ("NCCL", "nvshmem"):
        with pytest.raises(
            plait.Error, match="needs arrays on CUDA devices.*one of auto, MPI, NODE$"
        ):
            plait.config.update("transpose_comm_backend", value)
    with pytest.raises(plait.Error, match="CUDA devices and PLAIT_CUDA=1.*one of auto, plait$"):
        plait.config.update("dense_backend", "cusolvermg")
    assert plait.config.read() == DEFAULTS


def used(f, x):
    """The result of a call, and the plans that the call uses."""
    _core.trace_start(True)
    try:
        y = plait.block(f(x))
        return y, _core.trace()
    finally:
        _core.trace_start(False)


PROGRAMS = {
    "pfft3d": (lambda x, spec: plait.fft.pfft3d(x, spec=spec), np.fft.fftn, "transpose", 1e-10),
    "redistribute": (lambda x, _: plait.redistribute(x, P(None, "a")), np.array, "transpose", 0),
    "halo": (
        lambda x, spec: plait.halo.unpad(
            plait.halo.pad(x, (1, 1, 0), spec=spec), (1, 1, 0), spec=spec
        ),
        np.array,
        "halo",
        0,
    ),
}


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("shape", [(4,), (2, 2), (1,), (3, 2)])
def test_compiled_programs_follow(name, shape):
    f, oracle, family, tolerance = PROGRAMS[name]
    a = meshes.random((12, 12, 6), "complex128")
    spec = P(*"ab"[: len(shape)])
    x = meshes.put(a, meshes.make(shape), spec)
    compiled = plait.jit(lambda v: f(v, spec))
    plait.block(compiled(x))
    key = f"{family}_comm_backend"
    for value in ("MPI", "NODE", "auto", "MPI"):
        plait.config.update(key, value)
        y, plans = used(compiled, x)
        assert len(plans) == np.prod(shape)
        assert all((f"({key} {value})" in plan) == (value != "auto") for plan in plans)
        assert np.allclose(y, oracle(a), rtol=0, atol=tolerance)
    assert compiled._cache_size() == 1


def test_choices_of_others_are_no_concern():
    x = meshes.put(np.ones((4, 4)), meshes.make((2,)), P("a"))
    plait.config.update("halo_comm_backend", "MPI")
    _, plans = used(plait.jit(lambda v: plait.redistribute(v, P(None, "a"))), x)
    assert not any("backend" in plan for plan in plans)


@pytest.mark.parametrize("n_ranks", [1, 3])
def test_dense_programs_follow(n_ranks):
    """In host memory both choices have the same effect."""
    a = 9 * np.eye(8) + np.add.outer(np.arange(8.0), np.arange(8.0)) / 9
    x = meshes.put(a, meshes.make((n_ranks,)), P(None, None))
    factor = plait.jit(lambda v: plait.linalg.cholesky(v).l)
    values = plait.jit(lambda v: plait.linalg.eigvalsh(v))
    for f, want in ((factor, np.linalg.cholesky(a)), (values, np.linalg.eigvalsh(a))):
        for choice in ("auto", "plait"):
            with plait.config.set(dense_backend=choice):
                y, plans = used(f, x)
            assert any("potrf" in plan or "heevd" in plan for plan in plans) and np.allclose(
                y, want, rtol=0, atol=1e-12
            )
            assert any("(dense_backend plait)" in plan for plan in plans) == (choice == "plait")


@pytest.mark.parametrize("real", [False, True])
def test_exchange_is_bitwise_the_same(real):
    a = meshes.random((8, 12, 10), "float64" if real else "complex128")
    x = meshes.put(a, meshes.make((2, 2)), P("a", "b"))
    f = plait.jit(plait.fft.prfft3d if real else plait.fft.pfft3d)
    want = np.asarray(f(x))
    for choice in (
        {"transpose_exchange": "separate"},
        {"transpose_comm_backend": "MPI"},
        {"transpose_comm_backend": "MPI", "transpose_exchange": "separate"},
    ):
        with plait.config.set(**choice):
            y, plans = used(f, x)
            assert all("transpose" in plan for plan in plans)
            assert np.allclose(y, want, rtol=0, atol=1e-12)
    assert np.array_equal(f(x), want)


def test_a_change_waits_for_what_was_called_before():
    """All devices of a launch see one choice, no matter when they read it."""
    x = meshes.put(meshes.random((64, 64, 64), "complex128"), meshes.make((4,)), P("a"))
    f = plait.jit(plait.fft.fftn)
    want = np.asarray(f(x))
    for i in range(20):
        y = f(x)
        plait.config.update("transpose_comm_backend", ("MPI", "auto")[i % 2])
        assert np.allclose(y, want, rtol=0, atol=1e-9)


def test_derivatives_follow():
    x = meshes.put(meshes.random((4, 4, 4)), meshes.make((2,)), P("a"))
    g = plait.jit(jax.grad(lambda v: plait.sum(abs(plait.fft.pfft3d(v)) ** 2)))
    want = np.asarray(g(x))
    plait.config.update("transpose_comm_backend", "MPI")
    y, plans = used(g, x)
    assert (
        np.allclose(y, want)
        and sum("fft (transpose_comm_backend MPI)" in plan for plan in plans) == 4
    )


PROGRAM = """
import jax
import jax.numpy as jnp
jax.config.update("jax_num_cpu_devices", 2)
import numpy as np, plait
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P
from plait import _core
on_mesh = NamedSharding(Mesh(jax.devices(), "a"), P("a"))
x = jax.device_put(np.ones((2, 2, 2), np.complex64), on_mesh)
_core.trace_start(True)
try:
    plait.block(plait.fft.pfft3d(x))
    print(_core.trace()[0], plait.config.transpose_comm_backend)
except plait.Error as error:
    print("Error", error)
    plait.config.update("transpose_comm_backend", "auto")
    print(plait.block(plait.fft.pfft3d(x))[0, 0, 0].real)
"""


@pytest.mark.long(keep=1)
@pytest.mark.parametrize(
    ("value", "words"),
    [
        ("mpi", "(transpose_comm_backend MPI)|MPI"),
        ("", "auto"),
        ("shmem", "PLAIT_TRANSPOSE_COMM_BACKEND is 'shmem'; expected one of auto|8.0"),
        ("NVSHMEM", "needs arrays on CUDA devices|8.0"),
    ],
)
def test_environment(value, words):
    env = os.environ | {"PLAIT_TRANSPOSE_COMM_BACKEND": value}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], env=env, capture_output=True, text=True, timeout=200
    )
    assert done.returncode == 0, done.stderr
    for word in words.split("|"):
        assert word in done.stdout
