"""Matrices of far more rows than columns, split by rows over all devices: QR along a tree.

Singular values and polar decompositions come from those of R, which is dealt out for them.

All devices have equally many rows. The last rows of the last devices are zero, and stay zero in Q.
R and everything else that is n x n is whole on every device. Derivatives multiply rows where they
are; only one n x n sum over the devices travels.
"""

import dataclasses
import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.extend.core as jex
import jax.numpy as jnp
from jax import lax
from jax.interpreters import ad
from jax.scipy.linalg import solve_triangular
from plait import (
    _blas,
    _dense_args,
    _dense_batch,
    _dense_qr,
    _dense_rules,
    _dense_svd,
    _jax,
    _mesh_rules,
    _sites,
    _split,
)
from plait._dealt import Deal, Matrix
from plait._ops import Chain, Rules, rules
from plait._split import Spec

WHOLE: Spec = ((), ())
FORCED: bool | None = None  # set by tests: whether a tall matrix is split by rows

rules(
    "tsqr",
    Rules(
        results=lambda avals, params: [
            avals[0].update(shape=(0, avals[0].shape[1])) if params["without_q"] else avals[0],
            avals[0].update(shape=(avals[0].shape[0],) * 2),
        ],
        transpose=None,  # the global primitive has the derivatives
    ),
)


@dataclasses.dataclass(frozen=True)
class Rows:
    """An m x n matrix, split by rows; deal: how it would be dealt out otherwise.

    A device's part is column-major, so the global array has a row for each column.
    """

    deal: Deal
    m: int
    n: int

    @property
    def each(self) -> int:
        """Rows on each device."""
        return -(-self.m // self.deal.n_ranks)

    @property
    def dims(self) -> tuple[int, int]:
        """Extents of the array."""
        return (self.n, self.deal.n_ranks * self.each)

    @property
    def spec(self) -> Spec:
        """Of the array."""
        return ((), self.deal.axes)

    def of_columns(self, n: int) -> "Rows":
        """The same rows with other columns."""
        return dataclasses.replace(self, n=n)

    def split(self, x: Any, lay: _dense_args.Lay) -> Any:
        """Splits a global matrix, or vector."""
        given = {"dims": self.dims, "shape": (self.m, self.n), "turn": True}
        x = _dense_args.as_columns(x)
        return self.deal.redistribute(x, lay.spec, self.spec, **given)

    def back(self, x: Any, lay: _dense_args.Lay) -> Any:
        """Turns it into a global matrix again."""
        return _laid(x, self.deal, (self.n, self.m), self.spec, lay)


def _laid(x: Any, deal: Deal, shape: tuple, spec: Spec, lay: _dense_args.Lay) -> Any:
    """The transpose of an array with data of this shape, as a global matrix."""
    room = shape[::-1] if lay.room is None else lay.room
    to = _dense_args.fitted(deal.mesh, lay.spec, room)
    return deal.redistribute(x, spec, to, dims=room, shape=shape, turn=True)


def whole_back(x: Any, deal: Deal, lay: _dense_args.Lay, ndim: int = 2) -> Any:
    """A matrix that all devices have, as a global matrix, or as the vector that it stands for."""
    x = _laid(x.T, deal, x.shape[::-1], WHOLE, lay)
    return jnp.squeeze(x, 1) if ndim == 1 else x


def rows_of(shape: tuple[int, int], dtype: Any, deal: Deal, block: int | None) -> Rows | None:
    """The split by rows of such a matrix, if that is cheaper than dealing it out in columns.

    The times are those measured on one machine (see `src/dense/whole.c`). By rows, each device
    factors its own rows, with 5 operations an element and column. This is slower for few columns,
    since LAPACK's panels then go through memory. At each level of the tree, a pair of triangles is
    factored and multiplied. Dealt out, all devices read all panels twice, and one device factors a
    panel at half the speed.
    """
    rows = Rows(deal, *shape)
    n, n_ranks = rows.n, deal.n_ranks
    if block is not None or deal.batch or n_ranks == 1 or n == 0 or rows.each < n:
        return None
    is_complex = jnp.issubdtype(dtype, jnp.complexfloating)
    rate = 30e9 / (4 if is_complex else 1) * (2 if dtype.name in ("float32", "complex64") else 1)
    levels = math.ceil(math.log2(n_ranks))
    remote, phase = _dense_args.REMOTE, _dense_args.PHASE
    tree = levels * (9 * n**3 / rate + 1.5 * n**2 * dtype.itemsize / remote + 2 * phase)
    by_rows = 5 * (1 + 1.4 * min(1, 256 / n)) * rows.each * n**2 / rate + tree
    panels = 2 * rows.m * n * dtype.itemsize / remote + -(-n // deal.block) * levels * phase
    dealt = (6 * rows.m * n**2 / n_ranks + 4 * rows.m * n * deal.block) / rate + panels
    is_tall = by_rows < dealt if FORCED is None else FORCED
    return rows if is_tall else None


# ---- what is whole on all devices ----------------------------------------------------------------


def _sums(deal: Deal, parts: Any) -> Any:
    """The sum of all devices' matrices, which are stacked."""
    dims = (parts.shape[0] // deal.n_ranks, parts.shape[1])
    return _mesh_rules.bind("sums", parts, deal.mesh, (deal.axes, ()), WHOLE, dims=dims)


def _copies(deal: Deal, x: Any) -> Any:
    """Each device's own copy of a matrix, stacked. The adjoint of `_sums`."""
    dims = (x.shape[0] * deal.n_ranks, x.shape[1])
    return _mesh_rules.bind("copies", x, deal.mesh, WHOLE, (deal.axes, ()), dims=dims)


# ---- products ------------------------------------------------------------------------------------


def _local(rows: Rows, function: Callable, parts: tuple, copied: tuple, to: Spec) -> Any:
    """A function of devices' parts of row-split arrays, and of matrices that all devices have."""
    deal = rows.deal
    below = (deal.axes, ())
    specs = (*[rows.spec] * len(parts), *[below] * len(copied))
    mapped = _mesh_rules.on_parts(function, deal.mesh, specs, to)
    return mapped(*parts, *(_copies(deal, x) for x in copied))


def _product(x: Any, y: Any) -> Any:
    return jnp.matmul(x, y, precision=lax.Precision.HIGHEST)


def _solved(rows: Rows, x: Any, r: Any) -> Any:
    """X R⁻¹."""
    return _local(rows, lambda x, r: solve_triangular(r, x, trans=1), (x,), (r,), rows.spec)


def _times(rows: Rows, x: Any, y: Any) -> Any:
    """X Y, with a whole Y of n rows."""
    return _local(rows, lambda x, y: _product(y.T, x), (x,), (y,), rows.spec)


def _adjoint_times(rows: Rows, x: Any, y: Any) -> Any:
    """Xᴴ Y, whole."""
    below = (rows.deal.axes, ())
    parts = _local(rows, lambda x, y: _product(jnp.conj(x), y.T), (x, y), (), below)
    return _sums(rows.deal, parts)


# ---- what all devices have, dealt out, and back --------------------------------------------------


def _dealt_out(rows: Rows, x: Any) -> Matrix:
    """An n x n matrix that all devices have, dealt out."""
    deal, n = rows.deal, rows.n
    given = {"dims": deal.shape(n, n), "shape": (n, n), "blocks": ((0, 0), (deal.block, 0))}
    return Matrix(deal.redistribute(x.T, WHOLE, deal.spec, **given), deal, n, n)


def _on_all(x: Matrix) -> Any:
    """Such a matrix, on all devices again."""
    given = {"dims": (x.n, x.m), "shape": (x.n, x.m), "blocks": ((x.deal.block, 0), (0, 0))}
    return x.deal.redistribute(x.data, x.deal.spec, WHOLE, **given).T


# ---- the factorization ---------------------------------------------------------------------------


def _by_columns(rows: Rows, without_q: bool, x: Any) -> list:
    """The same factorization, with the matrix dealt out."""
    deal, shape = rows.deal, (rows.n, rows.m)
    whole, dealt = (0, 0), (deal.block, 0)
    data = deal.redistribute(
        x,
        rows.spec,
        deal.spec,
        dims=deal.shape(rows.m, rows.n),
        shape=shape,
        blocks=(whole, dealt),
    )
    x = Matrix(data, deal, rows.m, rows.n)
    if without_q:
        return [_on_all(_dense_qr.r_alone(x)).T]
    q, r = _dense_qr.qr(x)
    given = {"dims": rows.dims, "shape": shape, "blocks": (dealt, whole)}
    return [deal.redistribute(q.data, deal.spec, rows.spec, **given), _on_all(r).T]


def _tsqr_results(aval: Any, *, rows: Rows, without_q: bool, site: int) -> list:
    q = _split.typed(aval, rows.dims, aval.dtype, rows.spec)
    r = _split.typed(aval, (rows.n, rows.n), aval.dtype, WHOLE)
    return [r] if without_q else [q, r]


def _tsqr_lower(ctx: Any, x: Any, *, rows: Rows, without_q: bool, site: int) -> Any:
    _blas.require()
    given = {"m": rows.each, "n": rows.n, "without_q": int(without_q)}
    given |= {"donate": not without_q, "site": site}
    given["group"] = _dense_rules.group_for("qr", ctx, rows.deal)

    def local(part: Any) -> list:
        q_and_r = Chain().call("tsqr", part, **given)
        return q_and_r[1:] if without_q else q_and_r

    results = [WHOLE] if without_q else [rows.spec, WHOLE]
    mapped = _mesh_rules.on_parts(local, rows.deal.mesh, [rows.spec], results)
    return _jax.lower_traced(ctx, mapped, [x])


def _tsqr_batch(
    axis: Any, args: Sequence, dims: Sequence, *, rows: Rows, without_q: bool, site: int
) -> tuple:
    """Small matrices go to the devices whole; large ones are done one after the other."""
    n_batch = args[0].shape[dims[0]]
    if _dense_batch.is_spread(n_batch, rows.deal.n_ranks, rows.m):
        by_columns = functools.partial(_by_columns, rows, without_q)
        results = jax.vmap(by_columns, dims[0])(args[0])
        return results, [0] * len(results)
    params = {"rows": rows, "without_q": without_q, "site": site}
    return _dense_batch.one_by_one(_primitive(), args, dims, params)


def _tsqr_jvp(
    primals: Sequence, tangents: Sequence, *, rows: Rows, without_q: bool, site: int
) -> tuple:
    """As in `_dense_qr.qr`."""
    if type(tangents[0]) is ad.Zero:
        params = {"rows": rows, "without_q": without_q, "site": site}
        results = _primitive().bind(primals[0], **params)
        return results, [_jax.zero_tangent(x) for x in results]
    q, r = qr(rows, primals[0])
    dx_r = _solved(rows, tangents[0], r)
    c = _adjoint_times(rows, q, dx_r)
    i = jnp.arange(rows.n, dtype=jnp.int32)
    rest = c - _dense_qr.skew(i[:, None], i[None, :], c, jnp.conj(c.T))
    dr = _product(rest, r)
    if without_q:
        return [r.T], [dr.T]
    return [q, r.T], [dx_r - _times(rows, q, rest), dr.T]


@functools.cache
def _primitive() -> Any:
    made = jex.Primitive("plait_mesh_tsqr")
    _mesh_rules.define(
        made, results=_tsqr_results, lower=_tsqr_lower, batch=_tsqr_batch, jvp=_tsqr_jvp
    )
    return made


def qr(rows: Rows, x: Any) -> tuple:
    """Q, split as x, and R, whole."""
    q, r = _primitive().bind(x, rows=rows, without_q=False, site=_sites.here())
    return q, r.T


def r_alone(rows: Rows, x: Any) -> Any:
    """R, whole, in half of the time."""
    [r] = _primitive().bind(x, rows=rows, without_q=True, site=_sites.here())
    return r.T


def lstsq(rows: Rows, x: Any, b: Any) -> Any:
    """The solution of least squares, whole; b: split by rows as x."""
    q, r = qr(rows, x)
    return solve_triangular(r, _adjoint_times(rows, q, b))


def least_norm(rows: Rows, x: Any, b: Any) -> Any:
    """The y of least ‖y‖ with Xᴴ y = b, split by rows as x; b: whole."""
    q, r = qr(rows, x)
    return _times(rows, q, solve_triangular(r, b, trans=2))


def whole_rhs(rows: Rows, b: Any, lay: _dense_args.Lay, n_rhs: int) -> Any:
    """Right-hand sides with a row for each column of X, on all devices."""
    shape = (rows.n, n_rhs)
    b = _dense_args.as_columns(b)
    return rows.deal.redistribute(b, lay.spec, WHOLE, dims=shape, shape=shape)


# ---- by those of R -------------------------------------------------------------------------------

# Not derived through Q and R: for a matrix with nearly dependent columns, their derivatives have
# errors that the results themselves do not have.


@functools.partial(jax.custom_jvp, nondiff_argnums=(0,))
def polar(rows: Rows, x: Any) -> tuple:
    """U, split as x, and H, whole: from R = U' H, with U = Q U'."""
    q, r = qr(rows, x)
    u, h = _dense_svd.polar(_dealt_out(rows, r))
    return _times(rows, q, _on_all(u)), _on_all(h)


@polar.defjvp
def _polar_jvp(rows: Rows, primals: tuple, tangents: tuple) -> tuple:
    """As in `_dense_svd.polar`."""
    u, h = polar(rows, *primals)
    solve = _dense_svd.Balance(_dealt_out(rows, h))
    moved = _adjoint_times(rows, u, tangents[0])
    k = _on_all(solve.both(_dealt_out(rows, moved - jnp.conj(moved.T))))
    s, v = solve.s, _on_all(solve.v)

    def by_vectors(c: Any) -> Any:
        c = _times(rows, c, v) / s[:, None].astype(c.dtype)
        return _times(rows, c, jnp.conj(v.T))

    rest = tangents[0] - _times(rows, u, moved)
    rest = _dense_svd.solved(lambda y: _times(rows, y, h), by_vectors, rest)
    return (u, h), (_times(rows, u, k) + rest, moved - _product(k, h))


@functools.partial(jax.custom_jvp, nondiff_argnums=(0,))
def svd(rows: Rows, x: Any) -> tuple:
    """U, split as x, the singular values, and Vᴴ, whole: from R = U' S Vᴴ, with U = Q U'."""
    q, r = qr(rows, x)
    u, s, v = _dense_svd.svd(_dealt_out(rows, r))
    return _times(rows, q, _on_all(u)), s, _on_all(v.adjoint())


@svd.defjvp
def _svd_jvp(rows: Rows, primals: tuple, tangents: tuple) -> tuple:
    """As in `_dense_svd.svd`."""
    u, s, vh = svd(rows, *primals)
    dx_v = _times(rows, tangents[0], jnp.conj(vh.T))
    p = _adjoint_times(rows, u, dx_v)
    i = jnp.arange(rows.n, dtype=jnp.int32)
    given = (i[:, None], i[None, :], p, jnp.conj(p.T), s)
    du = _times(rows, u, _dense_svd.of_left(*given))
    rest = dx_v - _times(rows, u, p)
    du = du + _dense_svd.of_rest(i[None, :], i[:, None], rest, s)  # a row for each column
    dvh = _product(jnp.conj(_dense_svd.of_right(*given).T), vh)
    return (u, s, vh), (du, jnp.real(jnp.diagonal(p)), dvh)


@functools.partial(jax.custom_jvp, nondiff_argnums=(0,))
def svdvals(rows: Rows, x: Any) -> Any:
    """The singular values, which are those of R."""
    return _dense_svd.svdvals(_dealt_out(rows, r_alone(rows, x)))


@svdvals.defjvp
def _svdvals_jvp(rows: Rows, primals: tuple, tangents: tuple) -> tuple:
    """Re(uᴴ ȧ v) of each pair of vectors, also where values are equal."""
    u, s, vh = svd(rows, *primals)
    p = _adjoint_times(rows, u, _times(rows, tangents[0], jnp.conj(vh.T)))
    return s, jnp.real(jnp.diagonal(p))
