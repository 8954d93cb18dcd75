"""Batches of small matrices: each device takes whole matrices instead of a part of every one.

vmap of a dense operation has a batch of dealt matrices, which take all devices one after the other.
If a batch has at least as many matrices as there are devices, and they are small, the fences of a
factorization cost more than its arithmetic. Then the batch itself is dealt out, with one message to
the devices and one back, and every device calls LAPACK for its matrices. This is a primitive of its
own. Its derivatives are those of the batched operation under vmap, which are such primitives again.

A batch goes to the devices and back for each operation of a chain. Every public function is a
program whose results have the one layout that their type says, whoever reads them. And
redistributions are in program order, so even one whose result nobody reads is carried out.
"""

import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.extend.core as jex
import jax.numpy as jnp
from jax import lax
from jax.interpreters import ad
from plait import _blas, _groups, _jax, _mesh_rules, _split
from plait._dealt import Deal, Matrix, Whole
from plait._dealt_inside import Inside
from plait._split import Spec

# Extent of the largest matrix that is small. On two devices, with a processor each, a batch of two
# Cholesky factorizations and solutions takes as long in either way for n = 512. Dealing the batch
# out takes a third of the time for n = 32, and one and a half times as long for n = 1024. More
# devices wait more.
SMALL = 512


def is_spread(n_batch: int, n_ranks: int, extent: int, reach: int = 1) -> bool:
    """Whether each device takes whole matrices of a batch; extent: the largest one of a matrix.

    With fewer matrices than devices, some devices would have nothing to do. A large matrix keeps
    all devices busy by itself; if the devices do not divide the batch, some would be idle for as
    long as one device needs for a whole large matrix.
    """
    return n_ranks > 1 and n_batch >= n_ranks and extent <= SMALL * reach


@dataclasses.dataclass(frozen=True)
class Own(Deal):
    """Dealt out to one device, in a manual region where each device has matrices of its own."""

    group: Any = None

    @property
    def whole(self) -> "OwnWhole":
        """The deal of right-hand sides that stay as they are, beside matrices in blocks."""
        return OwnWhole(None, self.block, self.group)

    def redistribute(self, x: Any, src: Spec, dst: Spec, **given: Any) -> Any:
        """The same elements: there is no other device."""
        y = x[tuple(slice(n) for n in given["shape"])]
        y = y.T if given.get("turn", False) else y
        return jnp.pad(y, [(0, room - n) for room, n in zip(given["dims"], y.shape, strict=True)])


@dataclasses.dataclass(frozen=True)
class OwnWhole(Whole):
    """Not dealt out: the right-hand sides of a device's own matrices."""

    group: Any = None

    @property
    def dealt(self) -> Own:
        """The deal of the matrices."""
        return Own(None, self.block, self.group)

    def redistribute(self, x: Any, src: Spec, dst: Spec, **given: Any) -> Any:
        """As the deal of the matrices does."""
        return self.dealt.redistribute(x, src, dst, **given)


@dataclasses.dataclass(frozen=True)
class Part:
    """An operand or result for one matrix: rows and columns if it is dealt out, else its shape."""

    shape: tuple[int, ...]
    dtype: str
    is_dealt: bool = True
    block: int | None = None  # if other than the deal's

    def whole(self, deal: Deal) -> tuple[int, ...]:
        """Shape of the array."""
        if not self.is_dealt:
            return self.shape
        return deal.with_block(self.block or deal.block).shape(*self.shape)

    def local(self, deal: Deal) -> tuple[int, ...]:
        """Shape of every device's part."""
        whole = self.whole(deal)
        return (whole[0] // deal.n_parts, whole[1]) if self.is_dealt else whole

    @classmethod
    def of(cls, x: Any) -> "Part":
        """A `Matrix`, or an array that all devices have, as a part."""
        if isinstance(x, Matrix) and x.deal == x.deal.dealt:
            return cls((x.m, x.n), x.dtype.name)
        data = x.data if isinstance(x, Matrix) else x
        return cls(data.shape, x.dtype.name, False)

    def alone(self) -> "Part":
        """The same part if one device has the matrix as a single block."""
        block = None if self.block is None else max(1, self.shape[1])
        return dataclasses.replace(self, block=block)

    @property
    def data(self) -> tuple[int, ...]:
        """The shape of the array's data: a row for each column."""
        return self.shape[::-1] if self.is_dealt else self.shape

    def spec(self, deal: Deal) -> Spec:
        """How the array is split."""
        return deal.spec if self.is_dealt else ((),) * len(self.shape)

    def one_each(self, deal: Deal, front: tuple[str, ...]) -> Spec:
        """How a batch is split if every device has whole matrices."""
        return ((*front, *deal.axes), *((),) * len(self.shape))

    def blocks(self, deal: Deal) -> tuple[int, ...]:
        """Elements in a block of each axis; 0: the axis is not dealt out."""
        return (self.block or deal.block, 0) if self.is_dealt else (0,) * len(self.shape)


@dataclasses.dataclass(frozen=True)
class Kind:
    """An operation whose batches may be spread.

    parts: operands and results, from the operands' shapes and dtypes and the parameters.
    inside: the parameters in a manual region, where a device's arrays have this deal.
    reach: factor on the extent of the largest small matrix.
    """

    primitive: Any
    parts: Callable[[Sequence, dict], tuple[Sequence[Part], Sequence[Part]]]
    inside: Callable[[Deal, dict], dict]
    reach: int = 1


KINDS: dict[str, Kind] = {}


def one_by_one(primitive: Any, args: Sequence, dims: Sequence, params: dict) -> tuple:
    """A batch done one matrix after the other, each on all devices."""
    moved = (jnp.moveaxis(x, d, 0) for x, d in zip(args, dims, strict=True) if d is not None)
    batched = [_split.with_front(x, ()) for x in moved]

    def one(xs: Sequence) -> list:
        rest = iter(xs)
        given = [x if d is None else next(rest) for x, d in zip(args, dims, strict=True)]
        return primitive.bind(*given, **params)

    results = lax.map(one, batched)
    return results, [0] * len(results)


def front_of(axis: Any, deal: Deal) -> tuple[str, ...]:
    """The mesh axes that split vmap's axis but no matrix; none if they do not divide it."""
    front = tuple(name for name in _split.front_of(axis) if name in deal.batch)
    return front if axis.size % _split.parts(deal.mesh, front) == 0 else ()


def by_front(
    kind: str, axis: Any, front: tuple[str, ...], args: Sequence, dims: Sequence, params: dict
) -> tuple:
    """Right-hand sides of one matrix; devices along these mesh axes each have some of them."""
    mesh = params["deal"].mesh
    n_parts = _split.parts(mesh, front)
    if axis.size == n_parts:
        return batch(kind, axis, args, dims, params)
    bind = functools.partial(KINDS[kind].primitive.bind, **params)
    axes = (*[None] * (len(args) - 1), 0)
    b = _split.with_front(jnp.moveaxis(args[-1], dims[-1], 0), front)
    parts = _split.regrouped(b, 1, (n_parts, axis.size // n_parts), (front, ()))
    results = _vmap(mesh, front, jax.vmap(bind, axes), axes)(*args[:-1], parts)
    joined = [_split.regrouped(y, 2, (axis.size,), (front,)) for y in results]
    return joined, [0] * len(results)


def _vmap(mesh: Any, front: tuple[str, ...], function: Callable, axes: Any = 0) -> Callable:
    """jax.vmap over an axis that these mesh axes split; types say so for Explicit axes."""
    is_typed = any(_split.explicit(mesh, (front,))) if front else True
    return jax.vmap(function, axes, spmd_axis_name=None if is_typed else front)


def batch(kind: str, axis: Any, args: Sequence, dims: Sequence, params: dict) -> tuple:
    """The batching rule of an operation of this kind."""
    deal = params["deal"].dealt
    size, front = axis.size, front_of(axis, deal)
    one = [
        jax.ShapeDtypeStruct(x.shape if d is None else (*x.shape[:d], *x.shape[d + 1 :]), x.dtype)
        for x, d in zip(args, dims, strict=True)
    ]
    ins, outs = KINDS[kind].parts(one, params)
    extent = max(n for part in (*ins, *outs) for n in part.shape)
    if deal.group is not None or not (
        front or is_spread(size, deal.n_ranks, extent, KINDS[kind].reach)
    ):
        return one_by_one(KINDS[kind].primitive, args, dims, params)
    every, site = _in_front(args, dims, size, front), params.pop("site")
    given = tuple(sorted(params.items()))
    results = spread_p().bind(*every, kind=kind, given=given, front=front, site=site)
    return results, [0] * len(results)


def _parts(kind: str, batched: Sequence, params: dict) -> tuple:
    """Operands and results for one matrix of a batch."""
    one = [jax.ShapeDtypeStruct(x.shape[1:], x.dtype) for x in batched]
    return KINDS[kind].parts(one, params)


def _in_front(args: Sequence, dims: Sequence, size: int, front: tuple[str, ...]) -> list:
    every = (
        jnp.broadcast_to(x, (size, *x.shape)) if d is None else jnp.moveaxis(x, d, 0)
        for x, d in zip(args, dims, strict=True)
    )
    return [_split.with_front(x, front) for x in every]


# ---- the primitive -------------------------------------------------------------------------------


def _results(*avals: Any, kind: str, given: tuple, front: tuple[str, ...], site: int) -> list:
    params = dict(given)
    deal = params["deal"].dealt
    return [
        _split.typed(
            avals[0],
            (avals[0].shape[0], *out.whole(deal)),
            out.dtype,
            (front, *out.spec(deal)),
        )
        for out in _parts(kind, avals, params)[1]
    ]


def _given_out(x: Any, part: Part, deal: Deal, front: tuple[str, ...], own: Own) -> Any:
    """From all devices' parts of each matrix, a batch of whole ones; zero behind the last one."""
    n_batch, n_rest = x.shape[0], len(part.shape)
    n_parts = _split.parts(deal.mesh, front) * deal.n_ranks
    dims = (-(-n_batch // n_parts) * n_parts, *part.alone().whole(own))
    to = part.one_each(deal, front)
    if deal.n_ranks == 1 and dims == x.shape:
        return _split.as_split(x, to)  # the type has axes of one device elsewhere
    return deal.redistribute(
        x,
        (front, *part.spec(deal)),
        to,
        dims=dims,
        shape=(n_batch, *part.data),
        blocks=((0, *part.blocks(deal)), (0,) * (1 + n_rest)),
    )


def _taken_back(y: Any, n_batch: int, part: Part, deal: Deal, front: tuple[str, ...]) -> Any:
    """A batch of results as parts of each on all devices."""
    n_rest, dims = len(part.shape), (n_batch, *part.whole(deal))
    to = (front, *part.spec(deal))
    if deal.n_ranks == 1 and dims == y.shape:
        return _split.as_split(y, to)
    return deal.redistribute(
        y,
        part.one_each(deal, front),
        to,
        dims=dims,
        shape=(n_batch, *part.data),
        blocks=((0,) * (1 + n_rest), (0, *part.blocks(deal))),
    )


def _on_parts(kind: str, deal: Deal, params: dict, mesh: Any, specs: Sequence) -> Callable:
    """The operation on all matrices that a device has, or has parts of; deal: their deal there."""
    one = functools.partial(KINDS[kind].primitive.bind, **KINDS[kind].inside(deal, params))
    return _mesh_rules.on_parts(lambda *parts: list(jax.vmap(one)(*parts)), mesh, *specs)


def _lower(ctx: Any, *args: Any, kind: str, given: tuple, front: tuple[str, ...], site: int) -> Any:
    _blas.require()
    params = dict(given) | {"site": site}
    deal, (ins, outs) = params["deal"].dealt, _parts(kind, ctx.avals_in, params)
    devices = _groups.devices_of("linalg", ctx, deal.n_devices)
    n_batch = ctx.avals_in[0].shape[0]
    each = n_batch // _split.parts(deal.mesh, front)
    extent = max(n for part in (*ins, *outs) for n in part.shape)

    def alone(*args: Any) -> list:
        block = max(1, *(part.shape[1] for part in (*ins, *outs) if part.is_dealt))
        own = Own(None, block, _groups.of_each(devices))
        xs = [_given_out(x, part, deal, front, own) for x, part in zip(args, ins, strict=True)]
        specs = ([part.one_each(deal, front) for part in parts] for parts in (ins, outs))
        ys = zip(_on_parts(kind, own, params, deal.mesh, specs)(*xs), outs, strict=True)
        return [_taken_back(y, n_batch, part, deal, front) for y, part in ys]

    def together(*args: Any) -> list:
        mesh = _split.with_devices(deal.mesh, devices)
        group = _groups.Group(None, deal.n_ranks, mesh=tuple(mesh.shape.items()), over=deal.axes)
        specs = ([(front, *part.spec(deal)) for part in parts] for parts in (ins, outs))
        inside = Inside(None, deal.block, group)
        return _on_parts(kind, inside, params, mesh, specs)(*args)

    is_alone = deal.n_ranks == 1 or is_spread(each, deal.n_ranks, extent, KINDS[kind].reach)
    return _jax.lower_traced(ctx, alone if is_alone else together, args)


def _jvp(
    primals: Sequence,
    tangents: Sequence,
    *,
    kind: str,
    given: tuple,
    front: tuple[str, ...],
    site: int,
) -> tuple:
    """The batch of the operation's own jvp rule."""
    rule, mesh = ad.primitive_jvps[KINDS[kind].primitive], dict(given)["deal"].mesh
    active = [i for i, dx in enumerate(tangents) if type(dx) is not ad.Zero]

    def one(args: Sequence, moved: Sequence) -> tuple:
        every: list = [_jax.zero_tangent(x) for x in args]
        for i, dx in zip(active, moved, strict=True):
            every[i] = dx
        results, d_results = rule(args, every, **dict(given), site=site)
        return results, [ad.instantiate_zeros(dy) for dy in d_results]

    moved = [_split.with_front(tangents[i], front) for i in active]
    return _vmap(mesh, front, one)(list(primals), moved)


def _transpose(
    cts: Sequence, *args: Any, kind: str, given: tuple, front: tuple[str, ...], site: int
) -> list:
    rule, mesh = ad.primitive_transposes[KINDS[kind].primitive], dict(given)["deal"].mesh
    unknown = [i for i, x in enumerate(args) if ad.is_undefined_primal(x)]
    known = [x for x in args if not ad.is_undefined_primal(x)]

    def one(cts: Sequence, known: Sequence) -> list:
        rest = iter(known)
        every = [
            ad.UndefinedPrimal(_jax.aval_here(x.aval.shape[1:], x.aval.dtype))
            if ad.is_undefined_primal(x)
            else next(rest)
            for x in args
        ]
        answer = rule(cts, *every, **dict(given), site=site)
        return [answer[i] for i in unknown]

    every = [_split.with_front(ad.instantiate_zeros(ct), front) for ct in cts]
    found = iter(_vmap(mesh, front, one)(every, known))
    return [next(found) if ad.is_undefined_primal(x) else None for x in args]


def _batch(
    axis: Any,
    args: Sequence,
    dims: Sequence,
    *,
    kind: str,
    given: tuple,
    front: tuple[str, ...],
    site: int,
) -> tuple:
    """A batch of batches is one batch."""
    size, first = axis.size, front_of(axis, dict(given)["deal"])
    every = _in_front(args, dims, size, first)
    n_batch = every[0].shape[1]
    both = (*first, *front)
    joined = [_split.regrouped(x, 2, (size * n_batch,), (both,)) for x in every]
    results = spread_p().bind(*joined, kind=kind, given=given, front=both, site=site)
    apart = [_split.regrouped(y, 1, (size, n_batch), (first, front)) for y in results]
    return apart, [0] * len(results)


@functools.cache
def spread_p() -> Any:
    """The primitive of all kinds: operands and results have the batch axis in front."""
    made = jex.Primitive("plait_mesh_batch")
    _mesh_rules.define(
        made, results=_results, lower=_lower, batch=_batch, jvp=_jvp, transpose=_transpose
    )
    return made
