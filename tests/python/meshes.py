"""Meshes for the tests, and arrays on them."""

import jax
import numpy as np
import platforms
from jax.sharding import AxisType, Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

NAMES = "abcd"
# A jax.shard_map over operands without elements ends the process (docs/architecture.md).
ENDS_OVER_EMPTY = jax.__version__ == "0.11.2"


def make(shape, kind=AxisType.Auto, order=None):
    """A mesh of the first devices, in order or in the given order."""
    shape = platforms.fit(shape)
    n = int(np.prod(shape))
    devices = np.array(jax.devices())[range(n) if order is None else order].reshape(shape)
    return Mesh(devices, tuple(NAMES[: len(shape)]), axis_types=(kind,) * len(shape))


REPLICATED = P()


def put(x, mesh, spec=REPLICATED):
    """The array on the mesh."""
    return jax.device_put(x, NamedSharding(mesh, spec))


def random(shape, dtype="float64", seed=0):
    """Random numbers of any dtype."""
    rng = np.random.default_rng(seed)
    dtype = np.dtype(dtype)
    if dtype.kind == "c":
        x = rng.standard_normal(shape) + 1j * rng.standard_normal(shape)
    elif dtype.kind in "iu":
        x = rng.integers(0, 100, shape)
    elif dtype.kind == "b":
        x = rng.integers(0, 2, shape)
    else:
        x = rng.standard_normal(shape)
    return np.asarray(x).astype(dtype)


COLLECTIVES = ("all-reduce", "all-gather", "all-to-all", "collective-permute", "reduce-scatter")


def xla_collectives(f, *args):
    """XLA's own collectives in the compiled program; there should be none."""
    text = jax.jit(f).lower(*args).compile().as_text()
    return [name for name in COLLECTIVES if f" {name}(" in text or f" {name}-start(" in text]


def eps(dtype):
    """Rounding of a floating or complex dtype."""
    return jax.numpy.finfo(dtype).eps


def close(a, b):
    """The numbers agree, up to the rounding of a transform of this size."""
    a = np.asarray(a)
    assert a.shape == b.shape
    error = np.linalg.norm(a - b) / max(np.linalg.norm(b), 1e-300)
    assert error <= 16 * eps(a.dtype) * np.log2(max(b.size, 2)), error


def padded(a, dims, fill=np.nan):
    """The array, padded to these extents with garbage."""
    out = np.full(dims, fill, a.dtype)
    out[tuple(slice(n) for n in a.shape)] = a
    return out


def rounded(shape, mesh, spec):
    """The shape, rounded up to extents that the mesh divides."""
    names = [*spec, *[None] * (len(shape) - len(spec))]
    parts = [
        int(np.prod([mesh.shape[a] for a in ((n,) if isinstance(n, str) else n or ())]))
        for n in names
    ]
    return tuple(-(-n // k) * k for n, k in zip(shape, parts, strict=True))


def data(y, shape):
    """The data of a padded array; checks that the padding is zero."""
    rest = np.array(y)
    inside = tuple(slice(n) for n in shape)
    found = rest[inside].copy()
    rest[inside] = 0
    assert not rest.any()
    return found
