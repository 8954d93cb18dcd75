"""What the public functions of plait.linalg share: operands, blocks, programs, failures."""

import dataclasses
import functools
import math
import operator
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec
from plait import (
    _args,
    _dealt,
    _errors,
    _jax,
    _mesh,
    _mesh_rules,
    _reduce,
    _region,
    _split,
)
from plait._dealt import Deal, Matrix
from plait._split import Spec

DTYPES = ("float32", "float64", "complex64", "complex128")
SMALL, LARGE = 500, 2000  # extents from which blocks are larger
REMOTE, LOCAL, PHASE = 4.4e9, 10e9, 10e-6  # bytes per second, bytes per second, seconds
FORCED_WHOLE: bool | None = None  # set by tests: whether right-hand sides are whole


@dataclasses.dataclass(frozen=True)
class Lay:
    """How a matrix lies in a global array; a vector is a matrix of one column.

    shape, room: if the array has padding at its tail, the shape of its data, and its extents.
    """

    spec: Spec
    shape: tuple[int, int] | None = None
    room: tuple[int, int] | None = None

    @property
    def turned(self) -> "Lay":
        """That of the transpose."""
        shape, room = self.shape and self.shape[::-1], self.room and self.room[::-1]
        return Lay(self.spec[::-1], shape, room)

    def with_room(self, m: int, n: int) -> "Lay":
        """For a result, in an array of these extents if the operand's array has padding."""
        return self if self.room is None else dataclasses.replace(self, room=(m, n))


@dataclasses.dataclass(frozen=True)
class Operand:
    """A matrix or a vector, and where it is; shape: the shape of the data."""

    x: Any
    place: _mesh.Place
    shape: tuple[int, ...]

    @property
    def spec(self) -> Spec:
        """Of the matrix; for a vector, its spec with a whole axis added."""
        return self.place.spec if self.x.ndim == 2 else (*self.place.spec, ())

    @property
    def lay(self) -> Lay:
        """Of the matrix."""
        if self.shape == self.x.shape:
            return Lay(self.spec)
        shape, room = ((*n, 1)[:2] for n in (self.shape, self.x.shape))
        return Lay(self.spec, shape, room)


def _on_device(x: Any) -> Any:
    """The operand in its devices' own memory: JAX computes with arrays of one memory only."""
    space = getattr(jax.typeof(x), "memory_space", None)
    return jax.device_put(x, type(space).Device) if getattr(space, "name", "") == "Host" else x


def as_inexact(x: Any, name: str, argument: str = "a", like: Any = None) -> Any:
    """The operand with a dtype that solvers have; integers become floating-point, as in jax.numpy.

    like: the dtype of the other operands.
    """
    x = _on_device(_args.as_array(x, name, argument))
    x = _args.as_float(x) if like is None or not _args.is_exact(x) else x.astype(like)
    if x.dtype.name not in DTYPES:
        raise TypeError(
            f"{name}: {argument} has dtype {x.dtype.name}; expected {', '.join(DTYPES)} or integers"
        )
    return x


def operands(
    xs: dict[str, Any],
    mesh: Any,
    specs: dict[str, Any],
    name: str,
    shapes: dict[str, tuple[int, ...]] | None = None,
) -> dict[str, Operand]:
    """All operands of a call on one mesh: that of the first operand on a mesh, else ``mesh``.

    shapes: the shapes of the data, if not the whole arrays.
    """
    xs = {argument: _args.as_array(x, name, argument) for argument, x in xs.items()}
    like = next((x.dtype for x in xs.values() if x.dtype.name in DTYPES), None)
    xs = {argument: as_inexact(x, name, argument, like) for argument, x in xs.items()}
    kinds = {argument: x.dtype.name for argument, x in xs.items()}
    if len(set(kinds.values())) > 1:
        given = ", ".join(f"{argument} is {kind}" for argument, kind in kinds.items())
        raise TypeError(f"{name}: {given}; expected one dtype, convert with .astype")
    on_one = _mesh.homes_of(xs)
    _mesh.check_homes(on_one, name)
    mesh = next(iter(on_one.values())) if mesh is None and on_one else mesh
    found = {}
    for argument, x in xs.items():
        if on_one and argument not in on_one:
            x = _mesh.computed_beside(x, xs[next(iter(on_one))])
        spec = specs.get(argument)
        x, place = _mesh.locate(x, mesh, spec, f"{name} {argument}", is_any_size=True)
        shape = (shapes or {}).get(argument, x.shape)
        found[argument] = Operand(x, _mesh.concrete(x, place), shape)
        mesh = _mesh.ALONE if place.mesh is None else found[argument].place.mesh
    return found


def rhs(b: Any, factor: Matrix, spec: Any, name: str) -> Operand:
    """A right-hand side on the devices of a factor."""
    b = as_inexact(b, name, "b", factor.dtype)
    if b.dtype != factor.dtype:
        raise TypeError(
            f"{name}: b is {b.dtype.name}, a is {factor.dtype.name}; expected one dtype, convert "
            "with .astype"
        )
    mesh = factor.deal.mesh
    homes = _mesh.homes_of({"b": b})
    _mesh.check_homes({"a": mesh} | homes, name)
    if mesh is None and homes:
        raise ValueError(
            f"{name}: b is on mesh {dict(homes['b'].shape)}, a on one device: factor an a that is "
            "on the mesh (jax.device_put(a, NamedSharding(mesh, spec)))"
        )
    mesh = _mesh.ALONE if mesh is None else mesh
    x, place = _mesh.locate(b, mesh, spec, f"{name} b", is_any_size=True)
    return Operand(x, place, (factor.m, *b.shape[1:]))


def check_choice(value: Any, known: Any, argument: str, expected: str, name: str) -> None:
    """Checks a choice among a few values; an array, which cannot be compared with them, is none."""
    is_plain = value is None or isinstance(value, int | float | str | np.generic)
    if not is_plain or value not in known:
        raise ValueError(f"{name}: {argument} is {value!r}; expected {expected}")


def _ndim(x: Any, name: str, argument: str) -> int:
    """The number of axes of an array, or of what becomes one."""
    return x.ndim if hasattr(x, "ndim") else _args.as_array(x, name, argument).ndim


def check_matrix(
    x: Any, name: str, argument: str = "a", is_square: bool = False, shape: Any = None
) -> tuple[int, int]:
    """Two axes, of equal extent if is_square; returns the shape of the data, also from shape=."""
    if (ndim := _ndim(x, name, argument)) != 2:
        raise ValueError(
            f"{name}: {argument} has {ndim} axes; expected a matrix (jax.vmap does batches)"
        )
    m, n = _mesh.data_of(shape, jnp.shape(x), 0, name)
    if is_square and m != n:
        raise ValueError(f"{name}: {argument} is {m} x {n}; expected a square matrix")
    return m, n


def check_rhs(
    b: Any, n: int, name: str, room: int | None = None, shape: Any = None
) -> tuple[int, ...]:
    """A vector or matrix with n rows, or as many as a's array; returns the shape of its data."""
    if (ndim := _ndim(b, name, "b")) not in (1, 2):
        raise ValueError(f"{name}: b has {ndim} axes; expected 1 or 2")
    m, *rest = _mesh.data_of(shape, jnp.shape(b), 0, name)
    if m not in (n, n if room is None else room):
        raise ValueError(f"{name}: b has {m} rows, a has {n}")
    return (n, *rest)


def located(
    a: Any, name: str, mesh: Any, spec: Any, shape: Any, is_square: bool = False
) -> Operand:
    """The matrix of a call that has no other operand."""
    data = check_matrix(a, name, is_square=is_square, shape=shape)
    return operands({"a": a}, mesh, {"a": spec}, name, {"a": data})["a"]


def deal_of(operand: Operand, block: int | None, name: str) -> Deal:
    """How the operand is dealt out: by default in blocks that give each device several."""
    mesh = operand.place.mesh
    batch = () if mesh is None else tuple(sorted(_jax.axes_of_batches() & set(mesh.axis_names)))
    whole = Deal(mesh, 1, batch=batch)
    n = max(1, operand.shape[-1])
    if block is None:
        usual = 128 if n >= LARGE else 64 if n >= SMALL else 32
        each = -(-n // (4 * whole.n_ranks))
        return whole.with_block(n if whole.n_ranks == 1 else max(1, min(usual, each)))
    try:
        given = operator.index(block)
    except TypeError:
        raise TypeError(f"{name}: block is {block!r}; expected an integer") from None
    if given < 1:
        raise ValueError(f"{name}: block is {given}; expected 1 or more")
    return whole.with_block(min(given, n))


def deal_of_rhs(deal: Deal, shape: tuple[int, ...], dtype: Any) -> Deal:
    """The best deal for right-hand sides of a factor that is dealt out so: by columns, or whole.

    Dealt out by columns, each device reads all of the factor. Whole, each device reads only its own
    part of the factor, but all devices meet at every block. The times are those measured on one
    machine (see `src/dense/whole.c`).
    """
    n, n_rhs = (*shape, 1)[:2]
    if n * n_rhs == 0:
        return deal
    if deal.n_ranks == 1:
        return deal.whole  # a block is as wide as the factor
    is_complex = jnp.issubdtype(dtype, jnp.complexfloating)
    rate = 30e9 / (4 if is_complex else 1) * (2 if dtype.name in ("float32", "complex64") else 1)
    n_bytes, n_ranks = n * n / 2 * dtype.itemsize, deal.n_ranks
    n_blocks = -(-n // deal.block)
    each = min(n_rhs, -(-n_rhs // (deal.block * n_ranks)) * deal.block)
    by_columns = n_bytes / REMOTE + n * n * each / rate
    sums = n * n_rhs * dtype.itemsize * (n_ranks - 1) / REMOTE
    phases = n_blocks * PHASE * math.log2(n_ranks)
    shared = (n_bytes / LOCAL + n * n * n_rhs / rate) / n_ranks + sums + phases
    is_whole = shared < by_columns if FORCED_WHOLE is None else FORCED_WHOLE
    return deal.whole if is_whole else deal


def factored(
    function: Callable, a: Operand, block: int | None, text: str | None, name: str
) -> tuple[Any, Any]:
    """The parts of a factor by ``function``, and its status; text: of the error if that is not 0.

    Without a text, the caller judges the status.
    """
    deal = deal_of(a, block, name)
    *parts, status = run(function, a.x, lay=a.lay, deal=deal)
    return parts if text is None else guarded(parts, status, text, deal.mesh), status


def solve(solution: Callable, lay: Lay, factor: Matrix, rest: tuple, b: Any, spec: Any) -> Any:
    """``solution`` with a square factor and its arrays, for right-hand sides."""
    check_rhs(b, factor.n, "solve", lay.room and lay.room[0])
    factor = at_home(factor)
    given = rhs(b, factor, spec, "solve")
    deal = deal_of_rhs(factor.deal, jnp.shape(b), factor.dtype)
    return run(solution, factor, *rest, given.x, lay=given.lay, deal=deal)


def solved(
    factor: Callable, a: Any, b: Any, name: str, *, mesh: Any, spec: Any, shape: Any, **given: Any
) -> Any:
    """The solution by a factor of a, as the public function of this name."""
    n, _ = check_matrix(a, name, is_square=True, shape=shape)
    check_rhs(b, n, name, jnp.shape(a)[0])
    found = operands({"a": a, "b": b}, mesh, {"a": spec}, name)
    mesh = found["a"].place.mesh if mesh is None else mesh  # in a trace perhaps only b knows it
    f = factor(found["a"].x, mesh=mesh, spec=spec, name=name, shape=shape, **given)
    return f.solve(found["b"].x)


def at_home(a: Matrix) -> Matrix:
    """The matrix with the devices of its mesh, if they are known by now."""
    array = _jax.underlying(a.data)
    mesh = a.deal.mesh
    if mesh is None or isinstance(array, jax.core.Tracer):
        return a
    if isinstance(array, np.ndarray):  # from jax.device_get
        where = NamedSharding(mesh, _split.to_partition_spec(a.deal.spec))
        return a.with_data(jax.device_put(array, where))
    found = getattr(array.sharding, "mesh", mesh)
    return dataclasses.replace(a, deal=dataclasses.replace(a.deal, mesh=found))


def as_columns(x: Any) -> Any:
    """A vector as a matrix of one column."""
    return x[:, None] if x.ndim == 1 else x


def deal_in(lay: Lay, x: Any, deal: Deal, turn: bool = True) -> Matrix:
    """A matrix or vector, dealt out; turn: as in `_dealt.deal_out`."""
    return _dealt.deal_out(as_columns(x), lay.spec, deal, lay.shape, turn)


def back(a: Matrix, lay: Lay, ndim: int = 2, turn: bool = True) -> Any:
    """The global array of a dealt matrix, or the vector that it stands for; split if possible."""
    room = lay.room or ((a.m, a.n) if turn else (a.n, a.m))
    x = _dealt.collect(a, fitted(a.deal.mesh, lay.spec, room), room, turn)
    return jnp.squeeze(x, 1) if ndim == 1 else x


def fitted(mesh: Any, spec: Spec, shape: tuple[int, ...]) -> Spec:
    """The spec, with axes whole if the result's extents are not multiples of their parts."""
    return tuple(
        () if n % _split.parts(mesh, axes) else axes for n, axes in zip(shape, spec, strict=True)
    )


@functools.lru_cache(maxsize=4096)
def _program(function: Callable, given: tuple) -> Callable:
    return _region.jit(functools.partial(function, **dict(given)))


def run(function: Callable, *args: Any, **given: Any) -> Any:
    """One program for a whole public function; given: the static arguments."""
    return _program(function, tuple(sorted(given.items())))(*args)


# ---- failures ------------------------------------------------------------------------------------


def fail(status: Any, text: str) -> None:
    """Raises LinAlgError unless the status is 0: now, or when the program is waited for."""
    array = _jax.eager_array(status)
    if array is None:
        named = "plait.LinAlgError: " + text  # an exception in a program keeps only its text
        jax.debug.callback(functools.partial(_judge, text=named), status)
        return
    where = array.sharding
    if isinstance(where, NamedSharding) and not where.is_fully_replicated:  # in a batch
        array = jax.device_put(array, NamedSharding(where.mesh, PartitionSpec()))
    _judge(np.asarray(array.addressable_data(0)), text=text)


def guarded(x: Any, status: Any, text: str, mesh: Any) -> Any:
    """x, after `fail`: in a program, no device continues if the status says failure.

    A callback that raises ends the program on its device. The peers would wait for that device in
    an earlier operation, or in the next one. So each device asks by itself, between two ordered
    operations: all devices have finished the earlier operations, and none begins the next ones,
    whether these need x or not.
    """
    if _jax.eager_array(status) is not None or mesh is None or mesh.size == 1:
        fail(status, text)
        return x
    named, axes = "plait.LinAlgError: " + text, tuple(mesh.axis_names)
    part = functools.partial(_zero_if_good, text=named, axes=axes)
    whole = ((),) * status.ndim
    ask = _mesh_rules.on_parts(part, mesh, [whole], whole)
    zero = ask(status)
    return jax.tree.map(lambda v: jnp.where(jnp.any(zero != 0), jnp.zeros_like(v), v), x)


def _zero_if_good(status: Any, text: str, axes: tuple[str, ...]) -> Any:
    """On one device; only in a program over these axes of a mesh."""
    like = jax.ShapeDtypeStruct(status.shape, jnp.int32)
    worst = _reduce.allreduce(status.astype(jnp.int32), _args.MAX, comm=axes)

    def ask(found: Any) -> Any:
        _judge(found, text)
        return np.zeros(np.shape(found), np.int32)

    zero = jax.pure_callback(ask, like, worst, vmap_method="expand_dims")
    return _reduce.allreduce(zero, _args.MAX, comm=axes)


def _judge(status: Any, text: str) -> None:
    bad = np.asarray(status).ravel()
    bad = bad[bad != 0]
    if bad.size:
        raise _errors.LinAlgError(text.format(int(bad[0])))
