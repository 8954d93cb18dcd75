"""The table of BLAS and LAPACK functions: each function, each dtype, against NumPy and SciPy.

PLAIT_BLAS=/path/to/library tests the functions of that library.
"""

import ctypes
import glob
import os
import subprocess
import sys

import numpy as np
import pytest
import scipy.linalg
from plait import _blas, _core

lib = _core.lib
DTYPES = ("float32", "float64", "complex64", "complex128")
M, N, K = 37, 23, 11


class Work(ctypes.Structure):
    _fields_ = [
        *((name, ctypes.c_int64) for name in ("n", "n_real", "n_ints")),
        *((name, ctypes.c_void_p) for name in ("work", "real", "ints")),
    ]


@pytest.fixture(autouse=True)
def table():
    return _blas.require()


def call(name, dtype, *args, returns=ctypes.c_int64):
    """Call a function of the table: letters, integers, float, arrays in column-major order."""
    function = getattr(lib, "plait_blas_" + name)
    function.restype = returns
    given = [ctypes.c_int(_core.dtypes()[dtype])]
    for a in args:
        if isinstance(a, str):
            given.append(ctypes.c_char(a.encode()))
        elif isinstance(a, bool):
            given.append(ctypes.c_bool(a))
        elif isinstance(a, int):
            given.append(ctypes.c_int64(a))
        elif isinstance(a, float):
            given.append(ctypes.c_double(a))
        elif isinstance(a, np.ndarray):
            assert a.flags.f_contiguous
            given.append(a.ctypes.data_as(ctypes.c_void_p))
        else:
            given.append(a)
    return function(*given)


def with_work(name, dtype, *args):
    """Ask a function for its workspaces, and call it with them, all of them guarded."""
    work = Work(n=-1)
    assert call(name, dtype, *args, ctypes.byref(work)) == 0
    memory = [
        np.full(n + 8, 77, t)
        for n, t in ((work.n, dtype), (work.n_real, real(dtype)), (work.n_ints, "int64"))
    ]
    work.work, work.real, work.ints = (m.ctypes.data for m in memory)
    info = call(name, dtype, *args, ctypes.byref(work))
    for m in memory:
        assert (m[-8:] == 77).all(), f"{name} writes behind a workspace"
    return info


def real(dtype):
    return np.finfo(dtype).dtype.name


def random(shape, dtype, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.standard_normal(shape)
    if np.dtype(dtype).kind == "c":
        x = x + 1j * rng.standard_normal(shape)
    return np.asfortranarray(x.astype(dtype))


def hermitian(n, dtype, shift=0.0):
    a = random((n, n), dtype, 1)
    return np.asfortranarray((a + a.conj().T) / 2 + shift * np.eye(n)).astype(dtype, order="F")


def op(a, trans):
    return {"N": a, "T": a.T, "C": a.conj().T}[trans]


def close(got, want, dtype, n=M):
    """Within 10 n eps of the largest entry."""
    scale = max(1.0, float(np.abs(want).max(initial=0)))
    assert np.abs(got - want).max(initial=0) <= 10 * n * np.finfo(dtype).eps * scale


every_dtype = pytest.mark.parametrize("dtype", DTYPES)


# ---- the table -------------------------------------------------------------------------------


def test_each_name_once_and_in_scipy():
    names = _blas.names()
    assert len(set(names)) == len(names) == lib.plait_blas_count()
    assert lib.plait_blas_name(len(names)) is None and lib.plait_blas_name(-1) is None
    capsules = scipy.linalg.cython_blas.__pyx_capi__ | scipy.linalg.cython_lapack.__pyx_capi__
    assert set(names) <= set(capsules)


def test_every_function_has_a_test():
    """By the stems of the list; two of the functions make getrs, which is not listed."""
    text = open(__file__).read()
    stems = {name[1:] for name in _blas.names() if name[0] == "d"}
    called = {"sy": "he", "or": "or"}
    for stem in stems:
        name = called.get(stem[:2], stem[:2]) + stem[2:]
        name = "lanhe" if name == "lansy" else name
        assert f'"{name}"' in text, name


def test_library_is_known(table):
    assert os.path.exists(table.path) and table.int_bytes in (4, 8)
    assert _blas.require() == table


def test_sizes_that_do_not_fit(table):
    assert lib.plait_blas_fits(2**31 - 1) == 0
    if table.int_bytes == 8:
        assert lib.plait_blas_fits(2**31) == 0
    else:
        with pytest.raises(ValueError, match="2147483648 does not fit the 32-bit integers"):
            _core.check(lib.plait_blas_fits(2**31))


def test_filling_a_table_in_use():
    with pytest.raises(ValueError, match="dgemm comes too late"):
        _core.check(lib.plait_blas_fill(b"dgemm", 1))


def test_core_name_is_that_of_threadpoolctl(table):
    threadpoolctl = pytest.importorskip("threadpoolctl")
    if os.environ.get("PLAIT_BLAS"):
        pytest.skip("the library is not SciPy's")
    found = [i for i in threadpoolctl.threadpool_info() if "scipy" in i["filepath"]]
    if not found or found[0]["internal_api"] != "openblas":
        pytest.skip("SciPy's BLAS is not OpenBLAS")
    assert table.core == found[0]["architecture"]


def test_one_thread_inside_and_as_before_afterwards():
    threadpoolctl = pytest.importorskip("threadpoolctl")
    if lib.plait_blas_n_threads() == 0:
        pytest.skip("this BLAS does not say how many threads it uses")
    with threadpoolctl.threadpool_limits(2, "blas"):
        before = lib.plait_blas_n_threads()
        lib.plait_blas_enter()
        lib.plait_blas_enter()
        assert lib.plait_blas_n_threads() == 1
        lib.plait_blas_leave()
        assert lib.plait_blas_n_threads() == 1
        lib.plait_blas_leave()
        assert lib.plait_blas_n_threads() == before


IN_A_PROCESS = """
from plait import _blas, _core
try:
    print(_blas.require())
except Exception as error:
    print(type(error).__name__, error)
"""


def in_a_process(code=IN_A_PROCESS, **variables):
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=os.environ | variables,
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    return done.stdout


def test_plait_blas_names_a_library(table):
    folder = os.path.dirname(os.path.dirname(scipy.__file__))
    found = glob.glob(os.path.join(folder, "scipy.libs", "*openblas*"))
    found += glob.glob(os.path.join(folder, "numpy.libs", "*openblas*"))
    if not found:
        pytest.skip("neither SciPy nor NumPy brings an OpenBLAS of its own")
    for path in found:
        text = in_a_process(PLAIT_BLAS=path)
        assert os.path.basename(path) in text
        assert f"int_bytes={8 if '64_' in os.path.basename(path) else 4}" in text


def test_plait_blas_that_is_not_there():
    text = in_a_process(PLAIT_BLAS="/nowhere/libblas.so")
    assert "where PLAIT_BLAS says: /nowhere/libblas.so" in text and "No such file" in text


def test_plait_blas_without_the_functions():
    assert "libm.so.6 has no sgemm" in in_a_process(PLAIT_BLAS="libm.so.6")


def test_scipy_is_not_imported_with_plait():
    code = "import plait, sys; print([m for m in sys.modules if m.startswith('scipy')])"
    assert in_a_process(code).strip() == "[]"


# ---- BLAS ------------------------------------------------------------------------------------


@every_dtype
@pytest.mark.parametrize("trans_b", "NTC")
@pytest.mark.parametrize("trans_a", "NTC")
def test_gemm(trans_a, trans_b, dtype):
    a = random((M, K) if trans_a == "N" else (K, M), dtype)
    b = random((K, N) if trans_b == "N" else (N, K), dtype, 1)
    c = random((M, N), dtype, 2)
    want = 0.5 * op(a, trans_a) @ op(b, trans_b) - 2 * c
    call("gemm", dtype, trans_a, trans_b, M, N, K, 0.5, a, len(a), b, len(b), -2.0, c, M)
    close(c, want, dtype)


def triangle_close(got, want, before, uplo, dtype):
    """One triangle is that of `want`, the other triangle is unchanged."""
    in_it = np.tri(len(got), dtype=bool) if uplo == "L" else np.tri(len(got), dtype=bool).T
    close(np.where(in_it, got, 0), np.where(in_it, want, 0), dtype)
    assert np.array_equal(got[~in_it], before[~in_it])


@every_dtype
@pytest.mark.parametrize("uplo", "LU")
@pytest.mark.parametrize("trans", "NC")
def test_herk_and_her2k(trans, uplo, dtype):
    shape = (N, K) if trans == "N" else (K, N)
    a, b = random(shape, dtype), random(shape, dtype, 1)
    before = hermitian(N, dtype)
    x, y = op(a, trans), op(b, trans)
    c = before.copy("F")
    call("herk", dtype, uplo, trans, N, K, -0.5, a, len(a), 2.0, c, N)
    triangle_close(c, -0.5 * x @ x.conj().T + 2 * before, before, uplo, dtype)
    c = before.copy("F")
    call("her2k", dtype, uplo, trans, N, K, -0.5, a, len(a), b, len(b), 2.0, c, N)
    want = -0.5 * (x @ y.conj().T + y @ x.conj().T) + 2 * before
    triangle_close(c, want, before, uplo, dtype)


@every_dtype
@pytest.mark.parametrize("side", "LR")
@pytest.mark.parametrize("uplo", "LU")
def test_hemm(side, uplo, dtype):
    n = M if side == "L" else N
    whole = hermitian(n, dtype)
    a = np.asfortranarray(np.tril(whole) if uplo == "L" else np.triu(whole))
    b, c = random((M, N), dtype), random((M, N), dtype, 1)
    want = 0.5 * (whole @ b if side == "L" else b @ whole) - c
    call("hemm", dtype, side, uplo, M, N, 0.5, a, n, b, M, -1.0, c, M)
    close(c, want, dtype)


@every_dtype
@pytest.mark.parametrize("diag", "NU")
@pytest.mark.parametrize("trans", "NTC")
@pytest.mark.parametrize("uplo", "LU")
@pytest.mark.parametrize("side", "LR")
def test_trmm_and_trsm(side, uplo, trans, diag, dtype):
    n = M if side == "L" else N
    a = np.asfortranarray(random((n, n), dtype) / n + 2 * np.eye(n)).astype(dtype, order="F")
    t = np.tril(a) if uplo == "L" else np.triu(a)
    if diag == "U":
        np.fill_diagonal(t, 1)
    b = random((M, N), dtype, 1)
    x = b.copy("F")
    call("trmm", dtype, side, uplo, trans, diag, M, N, 0.5, a, n, x, M)
    close(x, 0.5 * (op(t, trans) @ b if side == "L" else b @ op(t, trans)), dtype)
    call("trsm", dtype, side, uplo, trans, diag, M, N, 2.0, a, n, x, M)
    close(x, b, dtype)


@every_dtype
@pytest.mark.parametrize("trans", "NTC")
def test_gemv_and_trmv(trans, dtype):
    a = random((M, N), dtype)
    x, y = random(N if trans == "N" else M, dtype, 1), random(M if trans == "N" else N, dtype, 2)
    want = 0.5 * op(a, trans) @ x - y
    call("gemv", dtype, trans, M, N, 0.5, a, M, x, 1, -1.0, y, 1)
    close(y, want, dtype)
    a, x = random((N, N), dtype), random(N, dtype)
    for uplo, t in (("L", np.tril(a)), ("U", np.triu(a))):
        z = x.copy()
        call("trmv", dtype, uplo, trans, "N", N, a, N, z, 1)
        close(z, op(t, trans) @ x, dtype)


@every_dtype
@pytest.mark.parametrize("uplo", "LU")
def test_hemv_and_ger(uplo, dtype):
    whole = hermitian(N, dtype)
    a = np.asfortranarray(np.tril(whole) if uplo == "L" else np.triu(whole))
    x, y = random(N, dtype), random(N, dtype, 1)
    want = 0.5 * whole @ x - y
    call("hemv", dtype, uplo, N, 0.5, a, N, x, 1, -1.0, y, 1)
    close(y, want, dtype)
    a, x = random((M, N), dtype), random(M, dtype)
    want = a - 2 * np.outer(x, y.conj())
    call("ger", dtype, M, N, -2.0, x, 1, y, 1, a, M)
    close(a, want, dtype)


# ---- factorisations --------------------------------------------------------------------------


@every_dtype
@pytest.mark.parametrize("uplo", "LU")
def test_potrf_trtri_lauum(uplo, dtype):
    a = hermitian(N, dtype, 2.0 * N)
    f = a.copy("F")
    assert call("potrf", dtype, uplo, N, f, N) == 0
    t = np.tril(f) if uplo == "L" else np.triu(f)
    close(t @ t.conj().T if uplo == "L" else t.conj().T @ t, a, dtype)
    assert call("trtri", dtype, uplo, "N", N, f, N) == 0
    i = np.tril(f) if uplo == "L" else np.triu(f)
    close(i @ t, np.eye(N), dtype)
    assert call("lauum", dtype, uplo, N, f, N) == 0
    product = i.conj().T @ i if uplo == "L" else i @ i.conj().T
    triangle_close(f, product, f, uplo, dtype)


@every_dtype
@pytest.mark.parametrize("minor", [1, 7, N])
def test_potrf_says_which_minor_fails(minor, dtype):
    a = np.asfortranarray(np.eye(N)).astype(dtype, order="F")
    a[minor - 1, minor - 1] = -1
    assert call("potrf", dtype, "L", N, a, N) == minor


@every_dtype
@pytest.mark.parametrize("n", [1, 5, N, 300])
def test_getrf_laswp_getrs(n, dtype):
    a, b = random((n, n), dtype), random((n, 3), dtype, 1)
    f, pivot = a.copy("F"), np.full(n + 1, -7, np.int64)
    assert call("getrf", dtype, n, n, f, n, pivot) == 0
    assert pivot[n] == -7
    want, rows = scipy.linalg.lu_factor(a)
    assert np.array_equal(pivot[:n], rows + 1)
    close(f, want, dtype, n)
    moved = b.copy("F")
    call("laswp", dtype, 3, moved, n, n, pivot, False)
    expected = b.copy()
    for i, p in enumerate(rows):
        expected[[i, p]] = expected[[p, i]]
    assert np.array_equal(moved, expected)
    call("laswp", dtype, 3, moved, n, n, pivot, True)
    assert np.array_equal(moved, b)
    for trans in "NTC":
        x = b.copy("F")
        call("getrs", dtype, trans, n, 3, f, n, pivot, x, n)
        error = np.abs(op(a, trans) @ x - b).max()
        size = np.linalg.norm(a) * np.linalg.norm(x) + np.linalg.norm(b)
        assert error <= 10 * n * np.finfo(dtype).eps * size


@every_dtype
def test_getrf_of_singular_and_oblong(dtype):
    a = random((M, N), dtype)
    a[:, 4] = a[:, 2]
    a[:, 5] = 0
    a[:, 4] = 0
    pivot = np.zeros(N, np.int64)
    assert call("getrf", dtype, M, N, a, M, pivot) == 5
    assert ((pivot >= 1) & (pivot <= M)).all()


@every_dtype
def test_geqrf_orgqr_ormqr(dtype):
    a, tau = random((M, N), dtype), np.zeros(N, dtype)
    f = a.copy("F")
    assert with_work("geqrf", dtype, M, N, f, M, tau) == 0
    r, q = np.triu(f[:N]), f.copy("F")
    assert with_work("orgqr", dtype, M, N, N, q, M, tau) == 0
    close(q @ r, a, dtype)
    close(q.conj().T @ q, np.eye(N), dtype)
    c = a.copy("F")
    assert with_work("ormqr", dtype, "L", "C", M, N, N, f, M, tau, c, M) == 0
    close(c, np.concatenate([r, np.zeros((M - N, N), dtype)]), dtype)
    assert with_work("ormqr", dtype, "L", "N", M, N, N, f, M, tau, c, M) == 0
    close(c, a, dtype)


@every_dtype
@pytest.mark.parametrize("trans", "NC")
@pytest.mark.parametrize("side", "LR")
def test_larft_larfb(side, trans, dtype):
    a, tau = random((M, K), dtype), np.zeros(K, dtype)
    v = a.copy("F")
    assert with_work("geqrf", dtype, M, K, v, M, tau) == 0
    t = np.zeros((K, K), dtype, order="F")
    call("larft", dtype, M, K, v, M, tau, t, K)
    unit = np.tril(v, -1) + np.eye(M, K, dtype=dtype)
    h = np.eye(M) - unit @ np.triu(t) @ unit.conj().T
    close(h.conj().T @ h, np.eye(M), dtype)
    close(np.tril((h.conj().T @ a), -1), 0 * a, dtype)
    shape = (M, N) if side == "L" else (N, M)
    c = random(shape, dtype, 1)
    want = op(h, trans) @ c if side == "L" else c @ op(h, trans)
    work = np.zeros(N * K + 1, dtype)
    call("larfb", dtype, side, trans, *shape, K, v, M, t, K, c, len(c), work)
    close(c, want, dtype)
    assert work[-1] == 0


@every_dtype
def test_larfg(dtype):
    x = random(N, dtype)
    alpha, tail, tau = x[:1].copy(), x[1:].copy(), np.zeros(1, dtype)
    call("larfg", dtype, N, alpha, tail, 1, tau)
    v = np.concatenate([np.ones(1, dtype), tail])
    y = x - tau.conj() * v * (v.conj() @ x)
    close(y, np.concatenate([alpha, 0 * tail]), dtype)
    close(abs(alpha[0]), np.linalg.norm(x), dtype)
    assert np.imag(alpha[0]) == 0


# ---- spectra ---------------------------------------------------------------------------------


@every_dtype
@pytest.mark.parametrize("uplo", "LU")
def test_heevd(uplo, dtype):
    a = hermitian(N, dtype)
    v, w = a.copy("F"), np.zeros(N, real(dtype))
    assert with_work("heevd", dtype, "V", uplo, N, v, N, w) == 0
    close(w, np.linalg.eigvalsh(a), dtype)
    close(a @ v, v * w, dtype)
    close(v.conj().T @ v, np.eye(N), dtype)
    other, alone = a.copy("F"), np.zeros(N, real(dtype))
    assert with_work("heevd", dtype, "N", uplo, N, other, N, alone) == 0
    close(alone, w, dtype)


@every_dtype
def test_heevd_of_a_matrix_whose_vectors_are_not_real(dtype):
    if np.dtype(dtype).kind != "c":
        pytest.skip("complex numbers only")
    a = np.array([[2, 1j], [-1j, 2]], dtype, order="F")
    v, w = a.copy("F"), np.zeros(2, real(dtype))
    assert with_work("heevd", dtype, "V", "L", 2, v, 2, w) == 0
    close(a @ v, v * w, dtype)
    close(w, np.array([1, 3]), dtype)


def tridiagonal(n, dtype):
    d, e = random(n, real(dtype)), random(n, real(dtype), 1)
    e[-1] = 0
    return d, e, np.diag(d) + np.diag(e[:-1], 1) + np.diag(e[:-1], -1)


@every_dtype
@pytest.mark.parametrize("n", [1, 2, N, 90])
def test_stedc(n, dtype):
    d, e, a = tridiagonal(n, dtype)
    z = np.zeros((n, n), dtype, order="F")
    assert with_work("stedc", dtype, "I", n, d, e, z, n) == 0
    close(d, np.linalg.eigvalsh(a), dtype, n)
    close(a @ z, z * d, dtype, n)
    close(z.conj().T @ z, np.eye(n), dtype, n)


@every_dtype
@pytest.mark.parametrize("n,first,last", [(1, 0, 0), (N, 0, N - 1), (N, 4, 9), (90, 60, 89)])
def test_stemr(n, first, last, dtype):
    many, found = last - first + 1, ctypes.c_int64(-1)
    d, e, a = tridiagonal(n, dtype)
    want = np.linalg.eigvalsh(a)[first : last + 1]
    w, z = np.zeros(n, real(dtype)), np.zeros((n, many), dtype, order="F")
    at = ctypes.byref(found)
    assert with_work("stemr", dtype, n, d, e, first, last, at, w, z, n) == 0
    assert found.value == many
    close(w[:many], want, dtype, n)
    close(a @ z, z * w[:many], dtype, n)
    close(z.conj().T @ z, np.eye(many), dtype, n)
    d, e, _ = tridiagonal(n, dtype)
    none = ctypes.c_void_p()
    assert with_work("stemr", dtype, n, d, e, first, last, at, w, none, n) == 0
    close(w[:many], want, dtype, n)


@every_dtype
@pytest.mark.parametrize("shape", [(M, N), (N, M)])
def test_gesvd(shape, dtype):
    a, k = random(shape, dtype), min(shape)
    u = np.zeros((shape[0], k), dtype, order="F")
    vh, s = np.zeros((k, shape[1]), dtype, order="F"), np.zeros(k, real(dtype))
    f = a.copy("F")
    assert with_work("gesvd", dtype, "S", "S", *shape, f, len(f), s, u, len(u), vh, k) == 0
    close(s, np.linalg.svd(a, compute_uv=False), dtype)
    close(u * s @ vh, a, dtype)
    close(u.conj().T @ u, np.eye(k), dtype)
    close(vh @ vh.conj().T, np.eye(k), dtype)


@every_dtype
def test_lange_lanhe(dtype):
    a, work = random((M, N), dtype), np.zeros(M, real(dtype))
    h = hermitian(N, dtype)
    lower = np.asfortranarray(np.tril(h))
    orders = {"1": 1, "I": np.inf, "F": "fro"}
    for norm in "M1IF":
        want = [np.abs(x).max() if norm == "M" else np.linalg.norm(x, orders[norm]) for x in (a, h)]
        got = call("lange", dtype, norm, M, N, a, M, work, returns=ctypes.c_double)
        close(got, want[0], dtype)
        got = call("lanhe", dtype, norm, "L", N, lower, N, work, returns=ctypes.c_double)
        close(got, want[1], dtype)
