"""The communication operations of generated programs: how each is called, and its meaning.

Parameters (roots, counts, pairs) are drawn as numbers. Every group of ranks, of any size, derives
its own parameters from the numbers, so one program runs on a world and on the parts of a split.
"""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import cases
import jax
import jax.numpy as jnp
import numpy as np
import oracle
import plait

WHOLE = -1  # in the place of a number of rows: the array itself


@dataclasses.dataclass(frozen=True)
class Operation:
    """One operation with its parameters.

    rows: how many rows the operand of rank r of n has, or WHOLE.
    call: computes the result from (operand, comm, rank, n, token=).
    want: computes the results of a group's ranks from their operands, one leaf.
    value: the part of a result that goes back among the program's values; None: no part.
    """

    text: str
    rows: Callable[[int, int], int]
    call: Callable[..., Any]
    want: Callable[[list], list]
    value: Callable[[Any], Any] | None = lambda y: y


@dataclasses.dataclass(frozen=True)
class Numbers:
    """Parameters that fit any number of ranks; is_uniform: equal on all of them."""

    drawn: tuple[int, ...]
    order: tuple[int, ...]
    is_uniform: bool
    serial: int

    @classmethod
    def draw(cls, rng, is_uniform, serial):
        drawn = tuple(rng.randrange(12) for _ in range(4))
        return cls(drawn, tuple(rng.sample(range(16), 16)), is_uniform, serial)

    def root(self, n):
        return self.drawn[0] % n

    def counts(self, n):
        a, b = self.drawn[0], 0 if self.is_uniform else self.drawn[1]
        return [(a + b * r) % 3 for r in range(n)]

    def table(self, n):
        a, b, c, _ = self.drawn
        if self.is_uniform:
            return [[(j - i) % n % (c % 3 + 1) for j in range(n)] for i in range(n)]
        return [[(a * i + b * j + c) % 3 for j in range(n)] for i in range(n)]

    def pairs(self, n):
        """A permutation of some of the ranks."""
        ranks = [r for r in self.order if r < n]
        step = self.drawn[2]
        pairs = [(r, ranks[(i + step) % n]) for i, r in enumerate(ranks)]
        return [pair for i, pair in enumerate(pairs) if (self.drawn[3] + i) % 5]

    def step(self):
        return self.drawn[1] % 3 - 1


def whole(rank, n):
    return WHOLE


def blocks(rank, n):
    return n


def _routed(xs, edges, n_out=None):
    """`oracle.route` for whole arrays."""
    ys = oracle.route([x[None] for x in xs], edges, [n_out or 1] * len(xs))
    return ys if n_out else [y[0] for y in ys]


# ---- reductions ----------------------------------------------------------------------------------


def _reducing(function, rows, want, value=lambda y: y):
    def make(numbers, reduction):
        op = getattr(plait, reduction)

        def call(x, comm, rank, n, **token):
            return function(x, op, comm=comm, **token)

        text = f"{function.__name__} {reduction}"
        return Operation(text, rows, call, functools.partial(want, op=reduction), value)

    return make


def _reduce(numbers, reduction):
    op = getattr(plait, reduction)
    return Operation(
        f"reduce {reduction} to {numbers.drawn[0]}",
        whole,
        lambda x, comm, rank, n, **t: plait.reduce(x, op, numbers.root(n), comm=comm, **t),
        lambda xs: oracle.reduce(xs, reduction, numbers.root(len(xs))),
    )


def _exscan(numbers, reduction):
    # The identities of MIN and MAX are infinite: no value to go on with.
    value = None if reduction in ("MIN", "MAX") else lambda y: y
    want = functools.partial(oracle.scan, exclusive=True)
    return _reducing(plait.exscan, whole, want, value)(numbers, reduction)


def _reduce_scatterv(numbers, reduction):
    op = getattr(plait, reduction)
    return Operation(
        f"reduce_scatterv {reduction} {numbers.drawn[:2]}",
        lambda rank, n: sum(numbers.counts(n)),
        lambda x, comm, rank, n, **t: plait.reduce_scatterv(
            x, op, numbers.counts(n), comm=comm, **t
        ),
        lambda xs: oracle.reduce_scatter(xs, reduction, numbers.counts(len(xs))),
    )


def _extreme(function, want):
    def make(numbers, reduction):
        return Operation(
            function.__name__,
            whole,
            lambda x, comm, rank, n, **token: function(x, comm=comm, **token),
            want,
            lambda y: y[0],
        )

    return make


REDUCTIONS = {
    "allreduce": _reducing(plait.allreduce, whole, oracle.allreduce),
    "reduce": _reduce,
    "scan": _reducing(plait.scan, whole, oracle.scan),
    "exscan": _exscan,
    "reduce_scatter": _reducing(plait.reduce_scatter, blocks, oracle.reduce_scatter),
    "reduce_scatterv": _reduce_scatterv,
}
EXTREMES = {
    "minloc": _extreme(plait.minloc, oracle.minloc),
    "maxloc": _extreme(plait.maxloc, oracle.maxloc),
}


# ---- movements -----------------------------------------------------------------------------------


def _bcast(numbers):
    return Operation(
        f"bcast from {numbers.drawn[0]}",
        whole,
        lambda x, comm, rank, n, **t: plait.bcast(x, numbers.root(n), comm=comm, **t),
        lambda xs: oracle.bcast(xs, numbers.root(len(xs))),
    )


def _allgather(numbers):
    return Operation(
        "allgather",
        whole,
        lambda x, comm, rank, n, **t: plait.allgather(x, comm=comm, **t),
        oracle.allgather,
    )


def _own(numbers, rank, n):
    return numbers.counts(n)[rank]


def _allgatherv(numbers):
    return Operation(
        f"allgatherv {numbers.drawn[:2]}",
        functools.partial(_own, numbers),
        lambda x, comm, rank, n, **t: plait.allgatherv(x, numbers.counts(n), comm=comm, **t),
        lambda xs: oracle.allgather(xs, numbers.counts(len(xs))),
    )


def _rooted(numbers, ys):
    """Devices of a manual region other than the root get zeros."""
    if not numbers.is_uniform:
        return ys
    root = numbers.root(len(ys))
    return [y if r == root else np.zeros_like(ys[root]) for r, y in enumerate(ys)]


def _gather(numbers):
    return Operation(
        f"gather to {numbers.drawn[0]}",
        whole,
        lambda x, comm, rank, n, **t: plait.gather(x, numbers.root(n), comm=comm, **t),
        lambda xs: _rooted(numbers, oracle.gather(xs, numbers.root(len(xs)))),
    )


def _gatherv(numbers):
    def call(x, comm, rank, n, **token):
        return plait.gatherv(x, numbers.counts(n), numbers.root(n), comm=comm, **token)

    def want(xs):
        n = len(xs)
        return _rooted(numbers, oracle.gather(xs, numbers.root(n), numbers.counts(n)))

    rows = functools.partial(_own, numbers)
    return Operation(f"gatherv {numbers.drawn[:2]}", rows, call, want)


def _scatter(numbers):
    def rows(rank, n):
        return n if numbers.is_uniform or rank == numbers.root(n) else WHOLE

    return Operation(
        f"scatter from {numbers.drawn[0]}",
        rows,
        lambda x, comm, rank, n, **t: plait.scatter(x, numbers.root(n), comm=comm, **t),
        lambda xs: oracle.scatter(xs, numbers.root(len(xs))),
    )


def _scatterv(numbers):
    def rows(rank, n):
        counts = numbers.counts(n)
        return sum(counts) if numbers.is_uniform or rank == numbers.root(n) else counts[rank]

    def call(x, comm, rank, n, **token):
        return plait.scatterv(x, numbers.counts(n), numbers.root(n), comm=comm, **token)

    def want(xs):
        return oracle.scatter(xs, numbers.root(len(xs)), numbers.counts(len(xs)))

    return Operation(f"scatterv {numbers.drawn[:2]}", rows, call, want)


def _alltoall(numbers):
    return Operation(
        "alltoall",
        blocks,
        lambda x, comm, rank, n, **t: plait.alltoall(x, comm=comm, **t),
        oracle.alltoall,
    )


def _alltoallv(numbers):
    return Operation(
        f"alltoallv {numbers.drawn[:3]}",
        lambda rank, n: sum(numbers.table(n)[rank]),
        lambda x, comm, rank, n, **t: plait.alltoallv(x, numbers.table(n), comm=comm, **t),
        lambda xs: oracle.alltoall(xs, numbers.table(len(xs))),
    )


def _permute(numbers):
    def want(xs):
        return _routed(xs, [(s, 0, d, 0) for s, d in numbers.pairs(len(xs))])

    return Operation(
        f"permute {numbers.order[:4]}",
        whole,
        lambda x, comm, rank, n, **t: plait.permute(x, numbers.pairs(n), comm=comm, **t),
        want,
    )


def _pvary(numbers):
    return Operation(
        "pvary", whole, lambda x, comm, rank, n, **t: plait.pvary(x, comm=comm, **t), oracle.pvary
    )


MOVEMENTS = {
    "bcast": _bcast,
    "allgather": _allgather,
    "allgatherv": _allgatherv,
    "gather": _gather,
    "gatherv": _gatherv,
    "scatter": _scatter,
    "scatterv": _scatterv,
    "alltoall": _alltoall,
    "alltoallv": _alltoallv,
    "permute": _permute,
}
NONLINEAR = {"pvary": _pvary}  # its adjoint counts the operand once


# ---- transfers between processes -----------------------------------------------------------------


def _sources(numbers, n, is_ring):
    """The source of each rank, along a ring or a line; None if it has no source."""
    step = numbers.step()
    places = [r - step for r in range(n)]
    return [p % n if is_ring or 0 <= p < n else None for p in places]


def _sendrecv(numbers):
    is_ring, is_any_tag = numbers.drawn[2] % 2 == 0, numbers.drawn[3] % 3 == 0
    is_any_source = is_ring and not is_any_tag and numbers.drawn[3] % 2 == 0

    def call(x, comm, rank, n, **token):
        """The first row is the template, the second is sent."""
        sources = _sources(numbers, n, is_ring)
        source = plait.PROC_NULL if sources[rank] is None else sources[rank]
        dest = sources.index(rank) if rank in sources else plait.PROC_NULL
        tag = 32 * numbers.serial
        recvtag = plait.ANY_TAG if is_any_tag or sources[rank] is None else tag + source
        template, sent = (jax.tree.map(lambda v, i=i: v[i], x) for i in range(2))
        return plait.sendrecv(
            sent,
            template,
            plait.ANY_SOURCE if is_any_source else source,
            dest,
            sendtag=tag + rank,
            recvtag=recvtag,
            comm=comm,
            **token,
        )

    def want(xs):
        sources = _sources(numbers, len(xs), is_ring)
        return oracle.sendrecv([x[1] for x in xs], [x[0] for x in xs], sources)

    text = f"sendrecv {'ring' if is_ring else 'line'} {numbers.step()}"
    text += " any tag" * is_any_tag + " any source" * is_any_source
    return Operation(text, lambda rank, n: 2, call, want)


TRANSFERS = {"sendrecv": _sendrecv}


# ---- neighbours on a line or ring of ranks -------------------------------------------------------


def _line(n, is_ring):
    """Edges (source, its block, dest, its block): block 0 goes down and arrives as block 1."""
    edges = []
    for r in range(n):
        for block, to in ((0, r - 1), (1, r + 1)):
            if is_ring or 0 <= to < n:
                edges.append((r, block, to % n, 1 - block))
    return edges


def _neighbor_allgather(numbers, is_ring):
    def want(xs):
        return _routed(xs, [(s, 0, d, b) for s, _, d, b in _line(len(xs), is_ring)], 2)

    return Operation(
        "neighbor_allgather",
        whole,
        lambda x, comm, rank, n, **t: plait.neighbor_allgather(x, comm=comm, **t),
        want,
    )


def _neighbor_alltoall(numbers, is_ring):
    return Operation(
        "neighbor_alltoall",
        lambda rank, n: 2,
        lambda x, comm, rank, n, **t: plait.neighbor_alltoall(x, comm=comm, **t),
        lambda xs: oracle.route(xs, _line(len(xs), is_ring), [2] * len(xs)),
    )


def _shift(numbers, is_ring):
    step = numbers.step()

    def want(xs):
        n = len(xs)
        to = [(r, r + step) for r in range(n) if is_ring or 0 <= r + step < n]
        return _routed(xs, [(s, 0, d % n, 0) for s, d in to])

    return Operation(
        f"shift {step}",
        whole,
        lambda x, comm, rank, n, **t: plait.shift(x, 0, step, comm=comm, **t),
        want,
    )


NEIGHBORS = {
    "neighbor_allgather": _neighbor_allgather,
    "neighbor_alltoall": _neighbor_alltoall,
    "shift": _shift,
}


# ---- choice --------------------------------------------------------------------------------------


def reductions_of(dtypes):
    """Names of the reductions that all these dtypes have."""
    return sorted(set.intersection(*(cases.KINDS[cases.kind_of(d)] for d in dtypes)))


def names_of(dtypes, is_linear, is_manual, topology):
    """Names of the operations for operands of these dtypes on such communicators."""
    names = list(MOVEMENTS)
    if not is_linear:
        names += NONLINEAR
    if not is_manual:
        names += TRANSFERS
    if reductions_of(dtypes):
        names += REDUCTIONS
    if len(dtypes) == 1 and not is_linear and "MIN" in reductions_of(dtypes):
        names += EXTREMES
    return names if topology is None else list(NEIGHBORS)


def make(name, numbers, reduction, topology=None):
    """The operation of this name."""
    if name in NEIGHBORS:
        return NEIGHBORS[name](numbers, topology == "ring")
    if name in REDUCTIONS or name in EXTREMES:
        return (REDUCTIONS | EXTREMES)[name](numbers, reduction)
    return (MOVEMENTS | NONLINEAR | TRANSFERS)[name](numbers)


# ---- faults --------------------------------------------------------------------------------------

FAULTS = ("operation", "reduction", "root", "counts", "pairs", "size", "dtype")
_ROWS = {"exscan": "scan", "pvary": None}  # others: the name without the v


def _row(name):
    return _ROWS.get(name, name.removesuffix("v"))


def faulty(fault, name, numbers, reduction, dtypes, rng):
    """The operation of this name with such a fault, or None if the fault does not apply."""
    later = dataclasses.replace(numbers, drawn=(numbers.drawn[0] + 1, *numbers.drawn[1:]))
    if fault == "operation":
        others = [
            o for o in (*MOVEMENTS, *(REDUCTIONS if reduction else ())) if _row(o) != _row(name)
        ]
        return make(rng.choice(sorted(others)), numbers, reduction)
    if fault == "reduction" and name in REDUCTIONS:
        others = [r for r in reductions_of(dtypes) if r != reduction]
        return make(name, numbers, rng.choice(others)) if others else None
    if fault == "root" and name in ("bcast", "reduce", "gather", "scatter"):
        return make(name, later, reduction)
    if fault == "counts" and name in ("allgatherv", "reduce_scatterv", "alltoallv"):
        return make(name, later, reduction)
    if fault == "pairs" and name == "permute":
        order = (*numbers.order[1:], numbers.order[0])
        other = dataclasses.replace(numbers, order=order)
        return None if other.pairs(2) == numbers.pairs(2) else make(name, other, reduction)
    if fault in ("size", "dtype") and name not in ("gather", "scatter", "gatherv", "scatterv"):
        return _with_other_arrays(make(name, numbers, reduction), fault)
    return None


def is_seen(fault, name, numbers):
    """Whether other ranks depend on the wrong part, in an operation on more than one rank."""
    if name == "pvary":  # pvary communicates nothing
        return fault == "operation"
    if name == "sendrecv":  # a pure receiver may drop the call; only its rank knows a tag
        is_ring, meets_others = numbers.drawn[2] % 2 == 0, numbers.step() != 0
        return fault == "operation" or (meets_others and (is_ring or fault != "dropped"))
    if fault == "size" and name.endswith("v"):  # twice zero rows is zero rows
        a, b, c, _ = (drawn % 3 for drawn in numbers.drawn)
        return (a == b == 0 != c) if name == "alltoallv" else a != 0 == b
    return True


def other_array(x, fault):
    """Twice the elements ("size"), or as many of another dtype ("dtype")."""
    if fault == "size":
        return jnp.stack([x, x], axis=-1)
    return x.astype(jnp.int16 if x.dtype == jnp.int32 else jnp.int32)


def _with_other_arrays(operation, fault):
    """The same operation on other arrays."""

    def call(x, *args, **token):
        changed = jax.tree.map(functools.partial(other_array, fault=fault), x)
        return operation.call(changed, *args, **token)

    return dataclasses.replace(operation, text=f"{fault}: {operation.text}", call=call)


# ---- plain arithmetic, in JAX and in NumPy -------------------------------------------------------


def modulo(x, xp):
    """Integers from 0 to 4, so that nothing that follows is rounded."""
    kind = cases.kind_of(str(x.dtype))
    if kind in ("bool", "float8"):
        return x
    if kind == "complex":
        real, imag = (modulo(part, xp).astype(x.dtype) for part in (xp.real(x), xp.imag(x)))
        return real + imag * xp.asarray(1j, x.dtype)
    return xp.remainder(x, xp.asarray(5, x.dtype))


def added(x, y, xp):
    """The sum, or for booleans and eight-bit floats an operation that exists for them."""
    kind = cases.kind_of(str(x.dtype))
    if kind == "bool":
        return xp.logical_xor(x, y)
    return xp.where(x == y, x, y) if kind == "float8" else x + y


def stacked(values, rows, xp):
    """Rows of different values; even an array without rows depends on one of the values."""
    return xp.stack([values[i % len(values)] for i in range(max(rows, 1))])[:rows]
