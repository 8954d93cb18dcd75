"""plait.compat.jaxdecomp: names, layouts, shardings of jaxDecomp 0.3.1; values against numpy."""

import doctest
import inspect
import itertools
import math
import pathlib
import subprocess
import sys

import jax
import jax.numpy as jnp
import meshes
import numpy as np
import oracle
import plait
import platforms
import pytest
from jax.lax import FftType
from jax.sharding import AxisType, Mesh, NamedSharding
from jax.sharding import PartitionSpec as P
from plait.compat import jaxdecomp

SIZE = (8, 16, 24)
AUTO, EXPLICIT = AxisType.Auto, AxisType.Explicit
NAMES = ("x", "y", "z")
# Mesh, spec of the operand, and the specs that jaxDecomp 0.3.1 gives there to its spectrum, its
# inverse, transposeXtoY and transposeXtoZ. BEYOND: jaxDecomp fails there; what plait gives.
CASES = [
    ((2, 4), P("x", "y"), P("x", "y"), P("x", "y"), P("y", "x"), P("y", "x")),
    ((8, 1), P("x", "y"), P(None, "x"), P("x"), P(None, "x"), P(None, "x")),
    ((8, 1), P("x"), P(None, "x"), P("x"), P(None, "x"), P(None, "x")),
    ((1, 8), P("x", "y"), P(None, "y"), P(None, "y"), P("y"), P("y")),
    ((1, 8), P(None, "y"), P(None, "y"), P(None, "y"), P("y"), P("y")),
    ((1, 1), P("x", "y"), P(), P(), P(), P()),
]
BEYOND = [
    ((8,), P("x"), P(None, "x"), P("x"), P(None, "x"), P(None, "x")),
    ((2, 4, 1), P("x", "y"), P("x", "y"), P("x", "y"), P("y", "x"), P("y", "x")),
    ((2, 4), P("y", "x"), P("y", "x"), P("y", "x"), P("x", "y"), P("x", "y")),
]


def make(shape, kind=AxisType.Auto):
    devices = np.array(jax.devices()[: math.prod(shape)]).reshape(shape)
    return Mesh(devices, NAMES[: len(shape)], axis_types=(kind,) * len(shape))


def is_split(y, spec):
    assert y.sharding.is_equivalent_to(NamedSharding(y.sharding.mesh, spec), y.ndim), y.sharding


def close(a, b):
    assert a.shape == b.shape
    error = np.linalg.norm(np.asarray(a) - b) / np.linalg.norm(b)
    assert error <= 16 * meshes.eps(a.dtype) * np.log2(b.size), error


@pytest.fixture
def in_place():
    jaxdecomp.config.update("transpose_axis_contiguous", False)
    yield
    jaxdecomp.config.update("transpose_axis_contiguous", True)


# ---- names ---------------------------------------------------------------------------------------

SIGNATURES = {
    "pfft3d": "a, norm, backend",
    "pifft3d": "a, norm, backend",
    "prfft3d": "a, norm, backend",
    "fftfreq3d": "array, d",
    "get_fft_output_sharding": "fft_sharding",
    "get_output_specs": "fft_type, pencil_type, spec, backend",
    "validate_spec_matches_mesh": "spec, mesh",
    "slice_pad": "x, padding_width, pdims, mode",
    "slice_unpad": "x, padding_width, pdims",
    "init": "",
    "finalize": "",
    **{f"transpose{a}to{b}": "x, backend" for a, b in itertools.permutations("XYZ", 2)},
}
STARTS = {
    "halo_exchange": "x, halo_extents, halo_periods, backend",
    "pirfft3d": "a, norm, backend",
    "rfftfreq3d": "array, d",
    "autotune": "shape",
    "get_pencil_info": "config, axis",
}
CONSTANTS = {
    "TRANSPOSE_COMM_MPI_P2P": 1,
    "TRANSPOSE_COMM_MPI_P2P_PL": 2,
    "TRANSPOSE_COMM_MPI_A2A": 3,
    "TRANSPOSE_COMM_NCCL": 4,
    "TRANSPOSE_COMM_NCCL_PL": 5,
    "TRANSPOSE_COMM_NVSHMEM": 6,
    "TRANSPOSE_COMM_NVSHMEM_PL": 7,
    "HALO_COMM_MPI": 1,
    "HALO_COMM_MPI_BLOCKING": 2,
    "HALO_COMM_NCCL": 3,
    "HALO_COMM_NVSHMEM": 4,
    "HALO_COMM_NVSHMEM_BLOCKING": 5,
    "SLAB_XY": 0,
    "SLAB_YZ": 1,
    "PENCILS": 2,
    "NO_DECOMP": 3,
    "TRANSPOSE_XY": 0,
    "TRANSPOSE_YZ": 1,
    "TRANSPOSE_ZY": 2,
    "TRANSPOSE_YX": 3,
}


def test_names_and_signatures():
    for name, wanted in SIGNATURES.items():
        assert ", ".join(inspect.signature(getattr(jaxdecomp, name)).parameters) == wanted, name
    for name, wanted in STARTS.items():
        found = ", ".join(inspect.signature(getattr(jaxdecomp, name)).parameters)
        assert found.startswith(wanted), name
    for name, value in CONSTANTS.items():
        assert getattr(jaxdecomp, name) == value and getattr(jaxdecomp, name).name == name
    assert jaxdecomp.fft.pfft3d is jaxdecomp.pfft3d is jaxdecomp.pfft3
    assert jaxdecomp.halo.halo_exchange is jaxdecomp.halo_exchange
    assert jaxdecomp.transpose.transposeXtoY is jaxdecomp.transposeXtoY
    assert all(hasattr(jaxdecomp, name) for name in jaxdecomp.__all__)
    assert isinstance(jaxdecomp.config, jaxdecomp.JAXDecompConfig)
    assert jaxdecomp.typing.PdimsType == tuple[int, int]


# ---- transforms ----------------------------------------------------------------------------------


@pytest.mark.long(keep=4)
@pytest.mark.parametrize("shape,spec,there,back,_y,_z", CASES + BEYOND)
def test_transforms_and_their_shardings(shape, spec, there, back, _y, _z):
    mesh = make(shape)
    a = meshes.random(SIZE, "complex128")
    x = jax.device_put(a, NamedSharding(mesh, spec))
    want = np.fft.fftn(a).transpose(1, 2, 0)
    y = jaxdecomp.pfft3d(x)
    close(y, want)
    is_split(y, there)
    promised = jaxdecomp.get_fft_output_sharding(NamedSharding(mesh, spec))
    assert promised.is_equivalent_to(y.sharding, 3)
    close(jaxdecomp.pifft3d(y), a)
    is_split(jaxdecomp.pifft3d(y), back)
    for f, v, w in [(jaxdecomp.pfft3d, x, want), (jaxdecomp.pifft3d, y, a)]:
        close(jax.jit(f)(v), w)


def test_shardings_under_jit_follow_the_mesh():
    for shape, spec, there, back, _, _ in CASES:
        x = jax.device_put(meshes.random(SIZE), NamedSharding(make(shape), spec))
        y = jax.jit(jaxdecomp.pfft3d)(x)
        is_split(y, there)
        is_split(jax.jit(jaxdecomp.pifft3d)(y), back)


@pytest.mark.parametrize("norm", ["backward", "ortho", "forward"])
def test_norms_backends_and_dtypes(norm):
    a = meshes.random((4, 8, 12), "float32")
    x = jax.device_put(a, NamedSharding(make((2, 2)), P("x", "y")))
    want = np.fft.fftn(a, norm=norm).transpose(1, 2, 0)
    for backend in ("JAX", "jax", "cudecomp", "cuDecomp"):
        y = jaxdecomp.pfft3d(x, norm, backend)
        assert y.dtype == "complex64"
        close(y, want)
        close(jaxdecomp.pifft3d(y, norm, backend), a)
    for dtype in ("int32", "bool", "bfloat16", "int64"):
        exact = (9 * x).astype(dtype)
        y = jaxdecomp.pfft3d(exact)
        assert y.dtype == ("complex128" if dtype == "int64" else "complex64")
        close(y, np.fft.fftn(np.asarray(exact, "float64")).transpose(1, 2, 0))


def test_without_a_mesh():
    a = meshes.random((3, 5, 7))
    x, want = jnp.asarray(a), np.fft.fftn(a).transpose(1, 2, 0)
    for there, back in [
        (jaxdecomp.pfft3d, jaxdecomp.pifft3d),
        (jax.jit(jaxdecomp.pfft3d), jax.jit(jaxdecomp.pifft3d)),
    ]:
        close(there(x), want)
        close(back(there(x)), a)
    np.testing.assert_array_equal(jaxdecomp.halo_exchange(x, (1, 1), (True, True)), a)
    np.testing.assert_array_equal(jaxdecomp.transposeXtoY(x), a.transpose(2, 0, 1))


@pytest.mark.long(keep=1)
@pytest.mark.parametrize("kind", [AxisType.Auto, AxisType.Explicit])
def test_real_transforms_have_no_padding(kind):
    mesh = make((2, 4), kind)
    for size in [(8, 16, 24), (4, 8, 7)]:
        a = meshes.random(size)
        x = jax.device_put(a, NamedSharding(mesh, P("x", "y")))
        y = jaxdecomp.prfft3d(x)
        close(y, np.fft.rfftn(a).transpose(1, 2, 0))
        is_split(y, P("x", None, "y"))
        specs = jaxdecomp.get_output_specs(FftType.RFFT, jaxdecomp.PENCILS, P("x", "y"))
        is_split(y, P(*specs))
        z = jaxdecomp.pirfft3d(y, shape=size)
        close(z, a)
        is_split(z, P("x", "y"))
        if size[2] % 2 == 0:
            close(jax.jit(jaxdecomp.pirfft3d)(y), a)
        k = jaxdecomp.rfftfreq3d(y, 0.5, shape=size)
        assert (sum(q**2 for q in k)).shape == y.shape
        np.testing.assert_allclose(k[2].ravel(), 2 * np.pi * np.fft.rfftfreq(size[2], 0.5))
    y = jaxdecomp.pfft3d(jnp.ones((4, 8, 7)))
    assert jaxdecomp.rfftfreq3d(y)[2].shape == (1, 4, 1)  # as in jaxDecomp


def test_frequencies():
    a = meshes.random((4, 6, 8), "float32")
    y = jaxdecomp.pfft3d(jax.device_put(a, NamedSharding(make((2, 2)), P("x", "y"))))
    k = jaxdecomp.fftfreq3d(y, 0.25)
    for q, n, shape in zip(k, a.shape, [(1, 1, 4), (6, 1, 1), (1, 8, 1)], strict=True):
        assert q.dtype == "float32" and q.shape == shape
        np.testing.assert_allclose(q.ravel(), 2 * np.pi * np.fft.fftfreq(n, 0.25), rtol=1e-6)
    gradient = jaxdecomp.pifft3d(1j * k[1].astype("complex64") * y)
    w = 2j * np.pi * np.fft.fftfreq(6, 0.25)[:, None]
    want = np.fft.ifft(w * np.fft.fft(a, axis=1), axis=1)
    assert np.linalg.norm(np.asarray(gradient) - want) <= 1e-5 * np.linalg.norm(want)
    with pytest.raises(ValueError, match="complex"):
        jaxdecomp.fftfreq3d(a)


def test_axes_in_place(in_place):
    a = meshes.random(SIZE)
    for shape, spec, there in [
        ((2, 4), P("x", "y"), P(None, "x", "y")),
        ((8, 1), P("x"), P(None, None, "x")),
        ((1, 8), P(None, "y"), P(None, None, "y")),
    ]:
        x = jax.device_put(a, NamedSharding(make(shape), spec))
        y = jaxdecomp.pfft3d(x)
        close(y, np.fft.fftn(a))
        is_split(y, there)
        assert jaxdecomp.get_fft_output_sharding(x.sharding).is_equivalent_to(y.sharding, 3)
        z = jaxdecomp.pifft3d(y)
        close(z, a)
        is_split(z, spec)
        close(jaxdecomp.prfft3d(x), np.fft.rfftn(a))
        close(jaxdecomp.pirfft3d(jaxdecomp.prfft3d(x)), a)
        assert [q.shape for q in jaxdecomp.fftfreq3d(y)] == [(8, 1, 1), (1, 16, 1), (1, 1, 24)]
    for name, spec in [("XtoY", P("x", None, "y")), ("XtoZ", P(None, "y", "x"))]:
        x = jax.device_put(a, NamedSharding(make((2, 4)), P("x", "y")))
        y = getattr(jaxdecomp, f"transpose{name}")(x)
        np.testing.assert_array_equal(y, a)
        is_split(y, spec)
        back = getattr(jaxdecomp, f"transpose{name[3]}toX")(y)
        is_split(back, P("x", "y"))


# ---- transposes ----------------------------------------------------------------------------------


@pytest.mark.long(keep=1)
@pytest.mark.parametrize("kind", [AxisType.Auto, AxisType.Explicit])
def test_transposes(kind):
    a = np.arange(math.prod(SIZE), dtype=np.int32).reshape(SIZE)
    for shape, spec, _, _, of_y, of_z in CASES:
        mesh = make(shape, kind)
        x = jax.device_put(a, NamedSharding(mesh, spec))
        y, z = jaxdecomp.transposeXtoY(x), jaxdecomp.transposeXtoZ(x)
        np.testing.assert_array_equal(y, a.transpose(2, 0, 1))
        np.testing.assert_array_equal(z, a.transpose(1, 2, 0))
        is_split(y, of_y)
        is_split(z, of_z)
        for back in (
            jaxdecomp.transposeYtoX(y),
            jaxdecomp.transposeZtoX(z),
            jaxdecomp.transposeZtoX(jaxdecomp.transposeYtoZ(y)),
            jaxdecomp.transposeYtoX(jaxdecomp.transposeZtoY(z)),
            jax.jit(jaxdecomp.transposeYtoX)(y),
        ):
            np.testing.assert_array_equal(back, a)
        is_split(jaxdecomp.transposeYtoX(y), spec)
    batch = jnp.stack([x, 2 * x])
    np.testing.assert_array_equal(jaxdecomp.transposeXtoY(batch)[1], 2 * a.transpose(2, 0, 1))


# ---- ghost cells ---------------------------------------------------------------------------------


def as_oracle(extents, periods):
    """Widths and boundaries in the oracle's form."""
    words = ["periodic" if flag else "zero" for flag in periods]
    return [(n, n) for n in extents], words


@pytest.mark.long(keep=4)
@pytest.mark.parametrize("periods", list(itertools.product([True, False], repeat=2)))
@pytest.mark.parametrize("shape", [(2, 4), (4, 1), (1, 4)])
def test_halo_exchange(shape, periods):
    mesh = make(shape)
    a = meshes.random((shape[0] * 7, shape[1] * 6, 3))
    x = jax.device_put(a, NamedSharding(mesh, P("x", "y")))
    extents = (2, 1)
    split = [e if n > 1 else 0 for e, n in zip(extents, shape, strict=True)]
    want = oracle.halo_exchange(a, (*shape, 1), *as_oracle((*split, 0), (*periods, True)))
    for f in (jaxdecomp.halo_exchange, jax.jit(jaxdecomp.halo_exchange, static_argnums=(1, 2))):
        y = f(x, extents, periods)
        np.testing.assert_array_equal(y, want)
        is_split(y, P("x", "y"))
    y = jaxdecomp.halo_exchange(jnp.stack([x, 2 * x]), extents, periods)
    np.testing.assert_array_equal(y[1], 2 * want)
    w = meshes.random(a.shape, seed=1)
    got = jax.grad(lambda v: jnp.sum(jaxdecomp.halo_exchange(v, extents, periods) * w))(x)
    full = oracle.halo_reduce(w, (*shape, 1), *as_oracle((*split, 0), (*periods, True)))
    np.testing.assert_allclose(got, full, rtol=1e-14, atol=1e-14)


@pytest.mark.parametrize("kinds", [(AUTO, EXPLICIT), (EXPLICIT, AUTO)])
def test_halo_exchange_on_auto_axes_beside_explicit_ones(kinds):
    """The type does not tell the Auto axes; an eager array does."""
    a = np.arange(64.0).reshape(8, 8, 1)
    mixed = Mesh(make((2, 2)).devices, ("x", "y"), axis_types=kinds)
    x, same = (jax.device_put(a, NamedSharding(m, P("x", "y"))) for m in (mixed, make((2, 2))))
    exchange = jax.jit(jaxdecomp.halo_exchange, static_argnums=(1, 2))
    want = jaxdecomp.halo_exchange(same, (1, 1), (True, True))
    assert not np.array_equal(want, a)
    np.testing.assert_array_equal(jaxdecomp.halo_exchange(x, (1, 1), (True, True)), want)
    with pytest.raises(ValueError, match="halo_exchange: .* Auto axes beside Explicit ones"):
        exchange(x, (1, 1), (True, True))


def test_early_releases():
    """slice_pad, three extents, reduce_halo: the README of 0.1."""
    mesh, pdims = make((2, 4)), (4, 2)
    a = meshes.random((8, 8, 4))
    x = jax.device_put(a, NamedSharding(mesh, P("x", "y")))
    width = ((2, 2), (1, 1), (3, 3))
    padded = jaxdecomp.slice_pad(x, width, pdims)
    want = np.concatenate([np.pad(p, ((2, 2), (0, 0), (3, 3))) for p in np.split(a, 2)])
    want = np.concatenate([np.pad(p, ((0, 0), (1, 1), (0, 0))) for p in np.split(want, 4, 1)], 1)
    np.testing.assert_array_equal(padded, want)
    is_split(padded, P("x", "y"))
    np.testing.assert_array_equal(jaxdecomp.slice_pad(jnp.asarray(a), width, pdims), want)
    for piece in (padded, jnp.asarray(want)):
        np.testing.assert_array_equal(jaxdecomp.slice_unpad(piece, width, pdims), a)
    full = jaxdecomp.halo_exchange(padded, (2, 1, 3), (True, True, True))
    np.testing.assert_array_equal(
        full, oracle.halo_pad(a, (2, 4, 1), *as_oracle((2, 1, 3), (1, 1, 1)))
    )
    assert jaxdecomp.slice_pad(x, 1, pdims).shape == (12, 16, 6)
    edge = jaxdecomp.slice_pad(x, 1, pdims, mode="edge")
    np.testing.assert_array_equal(np.asarray(edge)[0, 1:3, 1:5], a[0, :2])
    added = jaxdecomp.halo_exchange(padded, (2, 1), (True, True), reduce_halo=True)
    full = oracle.halo_exchange(want, (2, 4, 1), *as_oracle((2, 1, 0), (1, 1, 1)))
    for lines in np.split(full, 2):  # views: each part is changed in place
        lines[2:4] += lines[:2]
        lines[-4:-2] += lines[-2:]
    for columns in np.split(full, 4, 1):
        columns[:, 1:2] += columns[:, :1]
        columns[:, -2:-1] += columns[:, -1:]
    np.testing.assert_allclose(added, full, rtol=1e-15)


# ---- what programs do with them ------------------------------------------------------------------


@pytest.mark.long(keep=1)
@pytest.mark.parametrize("shape", [(2, 4), (4, 1), (1, 4)])
def test_derivatives(shape):
    a = meshes.random((4, 4, 4))
    x = jax.device_put(a, NamedSharding(make(shape), P("x", "y")))

    def f(v):
        y = jaxdecomp.pfft3d(v)
        k = jaxdecomp.fftfreq3d(y)
        return jaxdecomp.pifft3d(y * (k[0] ** 2 + k[1]).astype(y.dtype)).real

    k = [2 * np.pi * np.fft.fftfreq(4).reshape(s) for s in [(4, 1, 1), (1, 4, 1)]]
    filter_ = jnp.asarray(k[0] ** 2 + k[1], "complex128")

    def reference(v):
        return jnp.fft.ifftn(jnp.fft.fftn(v) * filter_).real

    want = jax.jit(jax.jacfwd(reference))(jnp.asarray(a))
    # All meshes have the same eager rules: each eager derivative is taken on one mesh.
    eager = {(2, 4): [jax.jacfwd(f)], (4, 1): [jax.jacrev(f)]}.get(shape, [])
    for jacobian in (*eager, jax.jit(jax.jacfwd(f)), jax.jit(jax.jacrev(f))):
        np.testing.assert_allclose(jacobian(x), want, atol=1e-12)
    g = jax.grad(lambda v: jnp.sum(f(v) ** 3))(x)
    want = jax.jit(jax.grad(lambda v: jnp.sum(reference(v) ** 3)))(a)
    np.testing.assert_allclose(g, want, atol=1e-11)
    is_split(g, P("x", "y"))


def test_derivatives_of_arrays_of_numpy():
    """In an eager derivative, a tracer may stand for a NumPy array, which is on no mesh."""
    a = meshes.random((4, 4, 4))
    for f in (jaxdecomp.pfft3d, lambda v: jaxdecomp.halo_exchange(v, (1, 1, 0), (True,) * 3)):
        gradient = jax.grad(lambda v, f=f: jnp.sum(jnp.abs(f(v)) ** 2))
        np.testing.assert_allclose(gradient(a), gradient(jnp.asarray(a)))
    tangent = jax.jvp(jaxdecomp.pfft3d, (a,), (a,))[1]
    np.testing.assert_allclose(tangent, np.fft.fftn(a).transpose(1, 2, 0), atol=1e-12)


def test_loops_batches_and_checkpoints():
    a = meshes.random((4, 8, 8), "complex128")
    x = jax.device_put(a, NamedSharding(make((2, 4)), P("x", "y")))

    def step(c):
        return 1.5 * jaxdecomp.pifft3d(jaxdecomp.pfft3d(c))

    def scanned(v):
        return jax.lax.scan(lambda c, _: (jax.checkpoint(step)(c), None), v, None, length=3)[0]

    for f in (scanned, jax.jit(scanned)):
        np.testing.assert_allclose(f(x), 1.5**3 * a, rtol=1e-12)
    g = jax.grad(lambda v: jnp.sum(jnp.abs(scanned(v)) ** 2))(x)
    np.testing.assert_allclose(g, 2 * 1.5**6 * np.conj(a), rtol=1e-12)
    w = jax.lax.while_loop(lambda c: c[0] < 2, lambda c: (c[0] + 1, step(c[1])), (0, x))[1]
    np.testing.assert_allclose(w, 1.5**2 * a, rtol=1e-12)
    many, want = jnp.stack([x, 2 * x, 3 * x]), 3 * np.fft.fftn(a).transpose(1, 2, 0)
    for y in (jaxdecomp.pfft3d(many), jax.vmap(jaxdecomp.pfft3d)(many)):
        close(y[2], want)
        is_split(y, P(None, "x", "y"))
    close(jax.jit(jax.vmap(jax.vmap(jaxdecomp.pfft3d)))(many[None])[0, 2], want)
    mesh = make((2, 2, 2))
    x = jax.device_put(np.stack([a, 2 * a]), NamedSharding(mesh, P("x", "y", "z")))
    y = jaxdecomp.pfft3d(x)
    close(y[1], 2 * want / 3)
    is_split(y, P("x", "y", "z"))
    assert jaxdecomp.get_fft_output_sharding(x.sharding).is_equivalent_to(y.sharding, 4)


@pytest.mark.parametrize("around", ["set_mesh", "with"])
def test_mesh_around_what_has_none(around):
    mesh = make((2, 4))
    program = jax.jit(lambda: jaxdecomp.pfft3d(jnp.ones((4, 8, 8))))
    if around == "set_mesh":
        with jax.set_mesh(mesh):
            y = program()
    else:
        with pytest.warns(DeprecationWarning), mesh:
            y = program()
    is_split(y, P("x", "y"))
    assert y[0, 0, 0] == 256


README = """
import jax
jax.config.update("jax_num_cpu_devices", 8)
import sys
from plait.compat import jaxdecomp
sys.modules["jaxdecomp"] = jaxdecomp

import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, PartitionSpec as P, NamedSharding, AxisType
import jaxdecomp
from jaxdecomp import pfft3
from jaxdecomp.fft import pifft3d

jaxdecomp.config.update("transpose_comm_backend", "NCCL")
jaxdecomp.config.update("halo_comm_backend", jaxdecomp.HALO_COMM_NCCL)
automesh = jaxdecomp.autotune(shape=[32, 32, 32], file="", repeats=1)
three = jax.make_mesh((2, 4, 1), ("x", "y", "z"), axis_types=(AxisType.Auto,) * 3)
for sharding in (NamedSharding(automesh, automesh.spec), NamedSharding(three, P("x", "y"))):
    a = jax.random.normal(jax.random.PRNGKey(0), (32, 32, 32))
    a = jax.lax.with_sharding_constraint(a, sharding)
    k_array = pfft3(a)
    rec_array = jaxdecomp.fft.pifft3d(k_array)
    exchanged = jaxdecomp.halo_exchange(a, halo_extents=(1, 1), halo_periods=(True, True))
    want = np.fft.fftn(a).transpose(1, 2, 0)
    assert len(a.sharding.device_set) == 8
    assert np.linalg.norm(k_array - want) < 1e-5 * np.linalg.norm(want)
    assert np.abs(rec_array - a).max() < 1e-5
    assert exchanged.shape == a.shape and exchanged.sharding.is_equivalent_to(sharding, 3)
    jaxdecomp.config.update("transpose_comm_backend", "MPI")
    assert np.array_equal(pfft3(a), k_array)
print("done")
"""


def test_programs_of_the_readme():
    platforms.need(8)
    command = [sys.executable, "-c", README]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0 and done.stdout == "done\n", done.stderr


def test_examples_of_the_docs():
    docs = pathlib.Path(__file__).resolve().parents[2] / "docs" / "compat.md"
    found = doctest.DocTestParser().get_doctest(docs.read_text(), {}, "compat.md", str(docs), 0)
    assert len(found.examples) > 10
    assert doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE).run(found).failed == 0


# ---- configuration and pencils -------------------------------------------------------------------


def test_configuration():
    config = jaxdecomp.config
    before = config.transpose_comm_backend, config.halo_comm_backend
    for given, kept, chosen in [
        ("MPI", jaxdecomp.TRANSPOSE_COMM_MPI_A2A, "MPI"),
        ("NCCL", jaxdecomp.TRANSPOSE_COMM_NCCL, "auto"),
        (jaxdecomp.TRANSPOSE_COMM_MPI_P2P_PL, jaxdecomp.TRANSPOSE_COMM_MPI_P2P_PL, "MPI"),
        ("transpose_comm_mpi_p2p", jaxdecomp.TRANSPOSE_COMM_MPI_P2P, "MPI"),
        (7, jaxdecomp.TRANSPOSE_COMM_NVSHMEM_PL, "auto"),
    ]:
        config.update("transpose_comm_backend", given)
        assert config.transpose_comm_backend is kept
        assert plait.config.transpose_comm_backend == chosen
    config.update("halo_comm_backend", "mpi")
    assert config.halo_comm_backend is jaxdecomp.HALO_COMM_MPI
    assert plait.config.halo_comm_backend == "MPI"
    config.halo_comm_backend = jaxdecomp.HALO_COMM_NCCL
    assert plait.config.halo_comm_backend == "auto"
    config.halo_comm_backend = "mpi_blocking"
    assert config.halo_comm_backend is jaxdecomp.HaloCommBackend.HALO_COMM_MPI_BLOCKING
    assert type(config)() and plait.config.halo_comm_backend == "MPI"
    for key, value in [
        ("other", 1),
        ("halo_comm_backend", "pigeon"),
        ("halo_comm_backend", 9),
        ("halo_comm_backend", True),
        ("transpose_axis_contiguous", "no"),
    ]:
        for change in (config.update, lambda k, v: setattr(config, k, v)):
            with pytest.raises(ValueError, match="valid"):
                change(key, value)
    assert plait.config.halo_comm_backend == "MPI" and config.transpose_axis_contiguous is True
    config.update("transpose_comm_backend", before[0])
    config.update("halo_comm_backend", before[1])
    assert jaxdecomp.init() is None and jaxdecomp.finalize() is None


def test_pencils_cover_the_grid():
    config = jaxdecomp.make_config()
    config.gdims, config.pdims = (7, 5, 9), (2, 3)
    for axis in range(3):
        seen = np.zeros(config.gdims, int)
        for rank in range(6):
            info = jaxdecomp.get_pencil_info(config, axis, rank=rank)
            assert info.order == tuple((axis + i) % 3 for i in range(3))
            assert info.shape[0] == config.gdims[axis] and info.size == math.prod(info.shape)
            place = [slice(None)] * 3
            for i, lo, hi in zip(info.order, info.lo, info.hi, strict=True):
                place[i] = slice(lo, hi + 1)
            seen[tuple(place)] += 1
        assert np.all(seen == 1)
    assert jaxdecomp.get_pencil_info(config, 0, rank=0).shape == (7, 3, 3)
    config = jaxdecomp.make_config(gdims=(8, 8, 16))
    tuned = jaxdecomp.get_autotuned_config(config, True, False, False, True, (0,) * 3, (True,) * 3)
    assert math.prod(tuned.pdims) == jax.device_count() and tuned.gdims == config.gdims


def test_errors():
    mesh = make((2, 4))
    x = jax.device_put(np.zeros((4, 8, 6)), NamedSharding(mesh, P("x", "y")))
    for call, text in [
        (lambda: jaxdecomp.pfft3d(x), "axis 2 of the result has 6 elements, which the 4 devices"),
        (lambda: jaxdecomp.pfft3d(x, backend="other"), "Unknown backend value 'other'"),
        (lambda: jaxdecomp.pfft3d(x[..., :4], "other"), "norm is 'other'"),
        (lambda: jaxdecomp.pfft3d(x[0]), "Unsupported input shape"),
        (lambda: jaxdecomp.halo_exchange(x, (1,), (True,)), "expected two of each"),
        (lambda: jaxdecomp.slice_pad(x, (1, 1)), "one for each axis"),
        (lambda: jaxdecomp.pirfft3d(x, shape=(2, 2)), r"shape=\(2, 2\) has 2 entries; expected"),
        (lambda: jaxdecomp.rfftfreq3d(x.astype(complex), shape=(2,)), "1 entries; expected three"),
        (lambda: jaxdecomp.fftfreq3d(x[0].astype(complex)), "fftfreq3d: Unsupported"),
        (lambda: jaxdecomp.get_pencil_info(jaxdecomp.make_config(), 0), "rank 0 of"),
        (lambda: jaxdecomp.get_pencil_info(jaxdecomp.make_config(), 3), "axis is 3"),
    ]:
        with pytest.raises(ValueError, match=text):
            call()
    with pytest.raises(ValueError, match="position 0.*None but mesh axis 'x' has size 2"):
        jaxdecomp.validate_spec_matches_mesh(P(None, "y"), mesh)
    with pytest.raises(ValueError, match="position 0.*'y' but mesh expects 'x'"):
        jaxdecomp.validate_spec_matches_mesh(P("y", "x"), mesh)
    jaxdecomp.validate_spec_matches_mesh(P("x", "y"), mesh)
    for extents in [(1.9, 0), ("1", 0), ((1, 1), (0, 0)), (float("nan"), 0)]:
        with pytest.raises(TypeError, match="halo_exchange: halo_extents is .*; expected integers"):
            jaxdecomp.halo_exchange(x, extents, (True, True))
    with pytest.raises(TypeError, match=r"halo_periods is \('no', True\); expected True or False"):
        jaxdecomp.halo_exchange(x, (1, 0), ("no", True))
    with pytest.raises(TypeError, match="Unknown pencil type"):
        jaxdecomp.get_output_specs(FftType.FFT, 9, P("x"))
    split = NamedSharding(mesh, P("x", "y"))
    held = jax.device_put(np.zeros((8, 8, 8)), split)
    with pytest.raises(ValueError, match="compiled for 1 devices.*arrays that a function closes"):
        jax.jit(lambda s: jaxdecomp.pfft3d(s * held))(1.0)
    inside = {
        "halo_exchange": lambda v: jaxdecomp.halo_exchange(v, (1, 1), (True, True)),
        "pfft3d": jaxdecomp.pfft3d,
        "slice_pad": lambda v: jaxdecomp.slice_pad(v, 1),
    }
    for name, call in inside.items():  # they would take the part for a whole array
        with pytest.raises(TypeError, match=f"{name}: takes global arrays; call it outside"):
            jax.shard_map(call, mesh=mesh, in_specs=P("x", "y"), out_specs=P("x", "y"))(held)
    with pytest.raises(ValueError, match="compiled for 8 devices"):
        whole = jax.jit(lambda v: jaxdecomp.pfft3d(jnp.ones((8, 8, 8))).real + v)
        whole(held)


def test_what_is_no_operand_is_named():
    for call in (jaxdecomp.pfft3d, jaxdecomp.transposeXtoY):
        with pytest.raises(TypeError, match="(pfft3d|transposeXtoY): .*None; expected an array"):
            call(None)
    with pytest.raises(TypeError, match="pfft3d: x has dtype key<fry>; expected float32"):
        jaxdecomp.pfft3d(jax.random.split(jax.random.key(0), (2, 2, 2)))
    with pytest.raises(ValueError, match="halo_exchange: extents 1, periods True; expected two"):
        jaxdecomp.halo_exchange(jnp.ones((4, 4, 4)), 1, True)


HALO = ((1, 1), (True, True))


@pytest.mark.parametrize("parts", [(4, 1), (1, 4), (2, 2)])
def test_vmap_over_an_axis_that_the_mesh_splits(parts):
    """The array tells the mesh axes of the batch: axis 0 is not split over the first mesh axis."""
    mesh = jax.make_mesh((2, *parts), ("c", "z", "y"), axis_types=(AxisType.Auto,) * 3)
    sharding = NamedSharding(mesh, P("c", "z", "y", None))  # all four axes, even of one device
    a = meshes.random((2, 16, 16, 16), "complex128")
    x = jax.device_put(a, sharding)
    k = jax.vmap(jaxdecomp.pfft3d)(x)
    want = np.fft.fftn(a, axes=(1, 2, 3)).transpose(0, 2, 3, 1)
    np.testing.assert_allclose(k, want, rtol=0, atol=1e-12 * np.abs(want).max())
    assert k.sharding.is_equivalent_to(jaxdecomp.get_fft_output_sharding(sharding), 4)
    alone = jax.make_mesh(parts, ("z", "y"), axis_types=(AxisType.Auto,) * 2)
    each = [
        jaxdecomp.halo_exchange(jax.device_put(one, NamedSharding(alone, P("z", "y"))), *HALO)
        for one in a
    ]
    np.testing.assert_array_equal(jax.vmap(lambda v: jaxdecomp.halo_exchange(v, *HALO))(x), each)


@pytest.mark.parametrize(("sizes", "is_known"), [((2, 4, 1), False), ((1, 4, 2), True)])
def test_a_batch_whose_split_jit_does_not_show(sizes, is_known):
    """The mesh's first axis splits either the batch or each array; one guess would be wrong."""
    mesh = jax.make_mesh(sizes, ("c", "z", "y"), axis_types=(AxisType.Auto,) * 3)
    a = meshes.random((2, 16, 16, 16), "float64")
    x = jax.device_put(a, NamedSharding(mesh, P("c", "z", "y")))
    for exchange in (
        lambda v: jaxdecomp.halo_exchange(v, *HALO),
        jax.vmap(lambda v: jaxdecomp.halo_exchange(v, *HALO)),
    ):
        want = exchange(x)
        if is_known:
            np.testing.assert_array_equal(jax.jit(exchange)(x), want)
        else:
            with pytest.raises(ValueError, match="does not say how a batch of arrays is split"):
                jax.jit(exchange)(x)
