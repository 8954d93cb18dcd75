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
    """The reduction on the root, zeros elsewhere."""
    y = allreduce(xs, op)[0]
    return [y if r == root else np.zeros_like(y) for r in range(len(xs))]


def bcast(xs, root):
    """The root's array, on every rank."""
    return [xs[root]] * len(xs)


def barrier(n):
    """Nothing, on every rank."""
    return [None] * n


def sendrecv(sends, templates, sources):
    """What source sent; the template where there is none (None)."""
    return [t if s is None else sends[s] for t, s in zip(templates, sources, strict=True)]


def redistribute(x):
    """The global array does not change."""
    return x


def fft(x, sign, norm, axes):
    """NumPy's transform."""
    return (np.fft.fftn if sign < 0 else np.fft.ifftn)(x, axes=axes, norm=norm)


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
