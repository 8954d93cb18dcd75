"""Matrices for the tests of plait.linalg, and bounds for errors."""

import ctypes

import meshes
import numpy as np
from jax.sharding import PartitionSpec as P
from plait import _core

DTYPES = ("float64", "complex128", "float32", "complex64")
SHAPES = (None, (1,), (2,), (4,), (8,), (2, 4))
BLOCKS = (None, 1, 3, 64, 300)


def specs(mesh):
    """Ways to split a matrix over a mesh of one or two axes."""
    if len(mesh.axis_names) == 1:
        return (P("a"), P(None, "a"), P())
    return (P("a", "b"), P(None, ("a", "b")), P("b"), P())


def put(a, shape, i=0):
    """The array on a mesh of this shape, split in the i-th way that its extents allow."""
    if shape is None:
        return a
    mesh = meshes.make(shape)
    every = [s for s in specs(mesh) if len(s) <= a.ndim]
    for spec in every[i % len(every) :]:
        if meshes.rounded(a.shape, mesh, spec) == a.shape:
            return meshes.put(a, mesh, spec)
    return meshes.put(a, mesh)


def orthogonal(n, dtype="float64", seed=0):
    """A random orthogonal or unitary matrix."""
    return np.linalg.qr(meshes.random((n, n), np.result_type(dtype, "float64"), seed))[0]


def definite(n, dtype="float64", cond=10.0, seed=0):
    """A Hermitian positive definite matrix with this condition number, exactly Hermitian."""
    q = orthogonal(n, dtype, seed)
    w = np.geomspace(1.0, 1.0 / cond, n) if n > 1 else np.ones(n)
    a = (q * w) @ q.conj().T
    return ((a + a.conj().T) / 2).astype(dtype)


def norm(a):
    """The Frobenius norm, in double precision."""
    return np.linalg.norm(np.asarray(a).astype(np.result_type(np.asarray(a).dtype, "float64")))


def limit(n, dtype):
    """10 n ε."""
    return 10 * max(n, 1) * float(meshes.eps(dtype))


def check_product(parts, want, n, what=""):
    """The product of the parts is `want`, to 10 n ε of its norm."""
    got = np.asarray(parts[0])
    double = np.result_type(got.dtype, "float64")
    got = got.astype(double)
    for part in parts[1:]:
        got = got @ np.asarray(part).astype(double)
    error = norm(got - want)
    assert error <= limit(n, np.asarray(parts[0]).dtype) * max(norm(want), 1e-300), (what, error)


def check_solution(a, x, b, what=""):
    """‖A x - b‖ <= 10 n ε (‖A‖ ‖x‖ + ‖b‖)."""
    x = np.asarray(x)
    double = np.result_type(x.dtype, "float64")
    r = a.astype(double) @ x.astype(double) - b
    bound = limit(len(a), x.dtype) * (norm(a) * norm(x) + norm(b))
    assert norm(r) <= bound, (what, norm(r), bound)


def check_orthonormal(q, what=""):
    """‖Qᴴ Q - I‖ <= 10 n ε."""
    q = np.asarray(q)
    double = q.astype(np.result_type(q.dtype, "float64"))
    error = norm(double.conj().T @ double - np.eye(q.shape[1]))
    assert error <= limit(max(q.shape), q.dtype) * max(1, q.shape[1]) ** 0.5, (what, error)


def choose_two_stages(request):
    """For this test, compute few eigenvectors, or none, through a band, as for larger matrices."""
    choose = _core.lib.plait_band_choose
    choose.argtypes, choose.restype = [ctypes.c_int64], None
    choose(0)
    request.addfinalizer(lambda: choose(-1))
