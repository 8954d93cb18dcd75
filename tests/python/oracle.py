"""What each operation means, in NumPy: one function each, all ranks' inputs at once."""

import numpy as np

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
    """The reduction in the order of ranks, on every rank."""
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
    """What a reduction of nothing is."""
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
    """Rank r: the reduction over ranks 0..r, or without r; reverse: over those from r on."""
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
    """All arrays in the order of ranks: stacked, or with counts their rows joined."""
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
    """What source sent; the template where there is none (None)."""
    return [t if s is None else sends[s] for t, s in zip(templates, sources, strict=True)]


def sendrecv(sends, templates, sources):
    """As `recv`."""
    return recv(templates, sends, sources)


def exchange(sends, templates, sources):
    """As `recv`, and who sent."""
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
    """NumPy's way back."""
    return np.fft.irfftn(x, s, axes, norm)


def frequencies(shape, axes, d, is_half, angular):
    """Those of each axis, in the shape that broadcasts."""
    found = []
    for i, (a, step) in enumerate(zip(axes, d, strict=True)):
        f = np.fft.rfftfreq if is_half and i == len(axes) - 1 else np.fft.fftfreq
        k = f(shape[a], step) * (2 * np.pi if angular else 1)
        found.append(k.reshape([-1 if j == a else 1 for j in range(len(shape))]))
    return found


def convolve(a, b, mode, axes):
    """By the definition: the sum of a's copies, each moved and times an element of b."""
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


def poisson(f, spacing, axes):
    """By the matrix of the second derivative of each axis, dense."""
    laplacian = 0
    n = [f.shape[a] for a in axes]
    for i, (size, h) in enumerate(zip(n, spacing, strict=True)):
        k = 2 * np.pi * np.fft.fftfreq(size, h)
        one = np.fft.ifft(-(k**2)[:, None] * np.fft.fft(np.eye(size), axis=0), axis=0)
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


def halo_indices(n, parts, extent, periodic):
    """For one axis: the global index of each cell of the padded array, -1 for none."""
    local = n // parts
    index = []
    for part in range(parts):
        for i in range(part * local - extent, (part + 1) * local + extent):
            index.append(i % n if periodic else i if 0 <= i < n else -1)
    return np.array(index, int)


def halo_pad(x, parts, extents, periodic):
    """Every part with its ghost cells, joined."""
    for axis, (k, e, p) in enumerate(zip(parts, extents, periodic, strict=True)):
        index = halo_indices(x.shape[axis], k, e, p)
        x = np.take(x, np.maximum(index, 0), axis=axis)
        shape = [1] * x.ndim
        shape[axis] = -1
        x = np.where((index >= 0).reshape(shape), x, np.zeros((), x.dtype))
    return x


def halo_unpad(x, parts, extents):
    """The interiors, joined."""
    for axis, (k, e) in enumerate(zip(parts, extents, strict=True)):
        local = x.shape[axis] // k
        keep = [p * local + i for p in range(k) for i in range(e, local - e)]
        x = np.take(x, keep, axis=axis)
    return x


def halo_exchange(x, parts, extents, periodic):
    """Ghosts are filled from the interiors."""
    return halo_pad(halo_unpad(x, parts, extents), parts, extents, periodic)


def halo_reduce(x, parts, extents, periodic):
    """The transpose of halo_exchange: ghosts are added to their owners and become zero."""
    for axis, (k, e, p) in enumerate(zip(parts, extents, periodic, strict=True)):
        n = x.shape[axis] - 2 * e * k
        index = halo_indices(n, k, e, p)
        interior = np.zeros((*x.shape[:axis], n, *x.shape[axis + 1 :]), x.dtype)
        moved, source = np.moveaxis(interior, axis, 0), np.moveaxis(x, axis, 0)
        for i, g in enumerate(index):
            if g >= 0:
                moved[g] += source[i]
        local = n // k
        own = halo_indices(n, k, e, True)
        out = np.zeros_like(source)
        for part in range(k):
            start = part * (local + 2 * e) + e
            out[start : start + local] = moved[own[start : start + local]]
        x = np.moveaxis(out, 0, axis)
    return x
