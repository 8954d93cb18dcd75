"""The meaning of each operation in NumPy: one function each, on the inputs of all ranks at once."""

import numpy as np
import scipy.fft
import scipy.linalg

_UFUNCS = {
    "SUM": np.add,
    "PROD": np.multiply,
    "MIN": np.minimum,
    "MAX": np.maximum,
    "LAND": np.logical_and,
    "LOR": np.logical_or,
    "LXOR": np.logical_xor,
    "BAND": np.bitwise_and,
    "BOR": np.bitwise_or,
    "BXOR": np.bitwise_xor,
}


def allreduce(xs, op):
    """The reduction in rank order, on every rank."""
    y = xs[0]
    if op.startswith("L"):
        y = y.astype(bool)
    for x in xs[1:]:
        y = _UFUNCS[op](y, x)
    return [y.astype(xs[0].dtype)] * len(xs)


def reduce(xs, op, root):
    """The reduction on the root; the others get their own array back."""
    y = allreduce(xs, op)[0]
    return [y if r == root else x for r, x in enumerate(xs)]


def identity(op, dtype):
    """The reduction of no operands."""
    dtype = np.dtype(dtype)
    if op in ("MIN", "MAX") and dtype.kind in "iu":
        info = np.iinfo(dtype)
        return np.array(info.max if op == "MIN" else info.min, dtype)
    if op in ("MIN", "MAX"):
        return np.array(np.inf if op == "MIN" else -np.inf).astype(dtype)
    if op == "BAND":
        return np.array(True) if dtype.kind == "b" else ~np.zeros((), dtype)
    return np.array(1 if op in ("PROD", "LAND") else 0).astype(dtype)


def scan(xs, op, exclusive=False, reverse=False):
    """Rank r: the reduction over ranks 0..r, exclusive without r; reverse: over ranks from r on."""
    if reverse:
        return scan(xs[::-1], op, exclusive)[::-1]
    ys = []
    for r in range(len(xs)):
        part = xs[: r + (not exclusive)]
        nothing = np.full(xs[0].shape, identity(op, xs[0].dtype))
        ys.append(allreduce(part, op)[0] if part else nothing)
    return ys


def _cut(x, counts):
    """The rows of each rank, or one block for each."""
    return list(x) if counts is None else np.split(x, np.cumsum(counts)[:-1])


def _join(xs, counts):
    return np.stack(xs) if counts is None else np.concatenate(xs)


def reduce_scatter(xs, op, counts=None):
    """Rank r: block r of the reduction."""
    return _cut(allreduce(xs, op)[0], counts)


def allgather(xs, counts=None):
    """All arrays in rank order: stacked, or with counts their rows joined."""
    return [_join(xs, counts)] * len(xs)


def gather(xs, root, counts=None):
    """All arrays on the root; the others get their own array back."""
    return [_join(xs, counts) if r == root else x for r, x in enumerate(xs)]


def scatter(xs, root, counts=None):
    """Rank r: block r of the root's array."""
    return _cut(xs[root], counts)


def alltoall(xs, counts=None):
    """Block j of rank i goes to rank j, where it is block i."""
    n = len(xs)
    cut = [_cut(x, None if counts is None else counts[i]) for i, x in enumerate(xs)]
    return [_join([cut[i][j] for i in range(n)], counts) for j in range(n)]


def route(xs, edges, n_out):
    """Block s of rank i is block d of rank j for each edge (i, s, j, d); other blocks are 0."""
    ys = [np.zeros((n, *x.shape[1:]), x.dtype) for n, x in zip(n_out, xs, strict=True)]
    for i, s, j, d in edges:
        ys[j][d] = xs[i][s]
    return ys


def minloc(xs, extreme=np.minimum):
    """The minimum and the lowest rank that has it."""
    value = extreme.reduce(xs)
    has = [(x == value) | ((x != x) & (value != value)) for x in xs]
    return [(value, np.argmax(has, axis=0).astype(np.int32))] * len(xs)


def maxloc(xs):
    """The maximum and the lowest rank that has it."""
    return minloc(xs, np.maximum)


def bcast(xs, root):
    """The root's array, on every rank."""
    return [xs[root]] * len(xs)


def barrier(n):
    """Nothing, on every rank."""
    return [None] * n


def pvary(xs):
    """Every rank's own array."""
    return xs


def send(xs):
    """Nothing, on every rank."""
    return [None] * len(xs)


def recv(templates, sends, sources):
    """The array that the source sent; the template where the source is None."""
    return [t if s is None else sends[s] for t, s in zip(templates, sources, strict=True)]


def sendrecv(sends, templates, sources):
    """As `recv`."""
    return recv(templates, sends, sources)


def exchange(sends, templates, sources):
    """As `recv`, with the sources."""
    return list(zip(recv(templates, sends, sources), sources, strict=True))


def redistribute(x):
    """The global array does not change."""
    return x


def fft(x, sign, norm, axes):
    """NumPy's transform."""
    return (np.fft.fftn if sign < 0 else np.fft.ifftn)(x, axes=axes, norm=norm)


def rfft(x, norm, axes, s=None):
    """NumPy's transform of real numbers."""
    return np.fft.rfftn(x, s, axes, norm)


def irfft(x, norm, axes, s):
    """NumPy's inverse transform of a half spectrum."""
    return np.fft.irfftn(x, s, axes, norm)


def frequencies(shape, axes, d, is_half, angular):
    """The frequencies along each axis, shaped to broadcast."""
    found = []
    for i, (a, step) in enumerate(zip(axes, d, strict=True)):
        f = np.fft.rfftfreq if is_half and i == len(axes) - 1 else np.fft.fftfreq
        k = f(shape[a], step) * (2 * np.pi if angular else 1)
        found.append(k.reshape([-1 if j == a else 1 for j in range(len(shape))]))
    return found


def convolve(a, b, mode, axes):
    """By the definition: the sum of copies of a, each moved and scaled by an element of b."""
    axes = [i % a.ndim for i in axes]
    n = [a.shape[i] for i in axes]
    m = [b.shape[i] for i in axes]
    if mode == "valid" and all(i < j for i, j in zip(n, m, strict=True)):
        a, b, n, m = b, a, m, n
    other = np.broadcast_shapes(
        *[[1 if i in axes else x.shape[i] for i in range(a.ndim)] for x in (a, b)]
    )
    shape = list(other)
    for i, j, k in zip(axes, n, m, strict=True):
        shape[i] = j + k - 1
    full = np.zeros(shape, np.result_type(a, b))
    for at in np.ndindex(*m):
        place, piece = [slice(None)] * a.ndim, [slice(None)] * a.ndim
        for i, offset, size in zip(axes, at, n, strict=True):
            place[i], piece[i] = slice(offset, offset + size), slice(offset, offset + 1)
        full[tuple(place)] += a * b[tuple(piece)]
    kept = [slice(None)] * a.ndim
    for i, j, k in zip(axes, n, m, strict=True):
        first = {"full": 0, "same": (k - 1) // 2, "valid": k - 1}[mode]
        size = {"full": j + k - 1, "same": j, "valid": j - k + 1}[mode]
        kept[i] = slice(first, first + size)
    return full[tuple(kept)]


def dctn(x, *given, **named):
    """SciPy's transform, like the three functions that follow."""
    return scipy.fft.dctn(x, *given, **named)


def idctn(x, *given, **named):  # noqa: D103
    return scipy.fft.idctn(x, *given, **named)


def dstn(x, *given, **named):  # noqa: D103
    return scipy.fft.dstn(x, *given, **named)


def idstn(x, *given, **named):  # noqa: D103
    return scipy.fft.idstn(x, *given, **named)


def _second_derivative(n, h, end):
    """The second derivative on n points, as a matrix; `end` says how functions continue beyond."""
    j, x = np.arange(n), (np.arange(n) + 0.5) / n
    if end == "periodic":
        k = 2 * np.pi * np.fft.fftfreq(n, h)
        return np.fft.ifft(-(k**2)[:, None] * np.fft.fft(np.eye(n), axis=0), axis=0)
    k = np.pi * (j + (end == "dirichlet")) / (n * h)
    waves = (np.sin if end == "dirichlet" else np.cos)(np.outer(x, k) * (n * h))
    return waves @ np.diag(-(k**2)) @ np.linalg.inv(waves)


def poisson(f, spacing, axes, ends=None):
    """By the dense matrix of the second derivative along each axis."""
    laplacian = 0
    n = [f.shape[a] for a in axes]
    ends = ends or ["periodic"] * len(n)
    for i, (size, h, end) in enumerate(zip(n, spacing, ends, strict=True)):
        one = _second_derivative(size, h, end)
        factors = [one if j == i else np.eye(m) for j, m in enumerate(n)]
        total = np.ones((1, 1))
        for factor in factors:
            total = np.kron(total, factor)
        laplacian = laplacian + total
    moved = np.moveaxis(f, axes, range(f.ndim - len(axes), f.ndim))
    solved = moved.reshape(-1, laplacian.shape[0]) @ np.linalg.pinv(laplacian, 1e-10).T
    u = np.moveaxis(solved.reshape(moved.shape), range(f.ndim - len(axes), f.ndim), axes)
    return u if np.iscomplexobj(f) else u.real


def sum(x, axis):  # noqa: A001
    """NumPy's sum."""
    return np.sum(x, axis=axis)


_PAD_MODES = {"periodic": "wrap", "zero": "constant", "edge": "edge", "reflect": "reflect"}


def _halo_windows(x, parts, width, shape):
    """Each part's cells, its places with ghosts, and its window of the padded whole array.

    Parts without data are left out.
    """
    for part in np.ndindex(*parts):
        cells, places, window = [], [], []
        for p, k, room, n, (lo, hi) in zip(part, parts, x.shape, shape, width, strict=True):
            each = room // k
            start, stop = min(p * each, n), min((p + 1) * each, n)
            first = p * (each + lo + hi)
            cells.append(slice(start, stop))
            places.append(slice(first, first + lo + stop - start + hi))
            window.append(slice(start, stop + lo + hi))
        if all(c.stop > c.start for c in cells):
            yield tuple(cells), tuple(places), tuple(window)


def halo_pad(x, parts, width, boundary, shape=None):
    """Every part with data as its window of numpy.pad of the whole array; zero elsewhere."""
    shape = x.shape if shape is None else shape
    whole = x[tuple(slice(n) for n in shape)]
    rooms = zip(x.shape, parts, width, strict=True)
    y = np.zeros([n + (lo + hi) * k for n, k, (lo, hi) in rooms], x.dtype)
    if whole.size:
        for axis, word in enumerate(boundary):
            widths = [width[axis] if i == axis else (0, 0) for i in range(x.ndim)]
            whole = np.pad(whole, widths, _PAD_MODES[word])
        for _, places, window in _halo_windows(x, parts, width, shape):
            y[places] = whole[window]
    return y


def halo_fold(y, parts, width, boundary, shape=None):
    """Every cell is the sum of its copies: the transpose of halo_pad."""
    rooms = zip(y.shape, parts, width, strict=True)
    x = np.zeros([n - (lo + hi) * k for n, k, (lo, hi) in rooms], y.dtype)
    number = np.arange(1, x.size + 1).reshape(x.shape)  # 0: a copy of no cell
    source = halo_pad(number, parts, width, boundary, shape)
    np.add.at(x.reshape(-1), source[source > 0] - 1, y[source > 0])
    return x


def _halo_inner(width, places):
    """The cells of a part within its window."""
    pairs = zip(width, places, strict=True)
    return tuple(slice(p.start + lo, p.stop - hi) for (lo, hi), p in pairs)


def halo_unpad(y, parts, width, shape=None):
    """The cells of all parts, joined."""
    rooms = zip(y.shape, parts, width, strict=True)
    x = np.zeros([n - (lo + hi) * k for n, k, (lo, hi) in rooms], y.dtype)
    for cells, places, _ in _halo_windows(x, parts, width, x.shape if shape is None else shape):
        x[cells] = y[_halo_inner(width, places)]
    return x


def halo_exchange(y, parts, width, boundary, shape=None):
    """Ghosts are filled from the cells."""
    return halo_pad(halo_unpad(y, parts, width, shape), parts, width, boundary, shape)


def halo_reduce(y, parts, width, boundary, shape=None):
    """The transpose of halo_exchange: ghosts are added to their owners and become zero."""
    x = halo_fold(y, parts, width, boundary, shape)
    z = np.zeros_like(y)
    for cells, places, _ in _halo_windows(x, parts, width, x.shape if shape is None else shape):
        z[_halo_inner(width, places)] = x[cells]
    return z


# ---- linear algebra ------------------------------------------------------------------------------


def matmul(a, b):
    return a @ b


def cholesky(a):
    """The lower factor of the Hermitian matrix with this lower triangle."""
    return np.linalg.cholesky(np.tril(a) + np.tril(a, -1).conj().T)


def solve(a, b):
    """a⁻¹ b, in double precision."""
    return np.linalg.solve(_double(a), _double(b))


def inv(a):
    """a⁻¹, in double precision."""
    return np.linalg.inv(_double(a))


def lu(a):
    """The order of the rows and the factors, with partial pivoting."""
    import scipy.linalg

    factor, exchanges = scipy.linalg.lu_factor(_double(a))
    order = np.arange(len(a))
    for i, j in enumerate(exchanges):
        order[[i, j]] = order[[j, i]]
    return order, np.tril(factor, -1) + np.eye(len(a)), np.triu(factor)


def slogdet(a):
    """Phase and logarithm of the determinant, in double precision."""
    return np.linalg.slogdet(_double(a))


def det(a):
    """The determinant, in double precision."""
    return np.linalg.det(_double(a))


def qr(a):
    """The reduced factors with a diagonal of r that is not negative."""
    q, r = np.linalg.qr(_double(a))
    phase = np.exp(1j * np.angle(np.diagonal(r))) if np.iscomplexobj(a) else np.sign(np.diagonal(r))
    q[:, : len(phase)] *= phase
    return q, phase.conj()[:, None] * r


def lstsq(a, b):
    """The x of least ‖a x - b‖."""
    return np.linalg.lstsq(_double(a), _double(b), rcond=None)[0]


def eigh(a, b=None):
    """Eigenvalues of a v = w b v, ascending, in double precision."""
    return scipy.linalg.eigvalsh(_double(a), None if b is None else _double(b))


def svd(a):
    """Singular values, descending, in double precision."""
    return np.linalg.svd(_double(a), compute_uv=False)


def polar(a):
    """The factors u and h ≥ 0."""
    u, s, vh = np.linalg.svd(_double(a), full_matrices=False)
    return u @ vh, (vh.conj().T * s) @ vh


def _double(a):
    return np.asarray(a).astype(np.result_type(np.asarray(a).dtype, "float64"))
