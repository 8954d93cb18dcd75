"""Arguments of the rank model's functions, judged the same way for all of them."""

import contextlib
import functools
import operator
import sys
from collections.abc import Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from plait import _coll_rules, _comm, _core, _eager, _jax
from plait._comm import ANY_SOURCE, ANY_TAG, PROC_NULL
from plait._groups import Group

_NEGATIVE = -(2**30)  # PLAIT_NEGATIVE of the core
MAX_TAG = 2**31 - 1  # the transport may have a smaller bound

# ---- reductions ----------------------------------------------------------------------------------


@_eager.is_static
class Reduction:
    """A reduction of the core, such as ``plait.SUM``; equal by value."""

    def __init__(self, code: int, name: str):
        self.code, self.name = code, name

    def __repr__(self) -> str:
        return f"plait.{self.name}"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Reduction) and other.code == self.code

    def __hash__(self) -> int:
        return hash(("plait.Reduction", self.code))


REDUCTIONS = {name: Reduction(code, name) for code, name in enumerate(_core.reductions())}
SUM, PROD, MIN, MAX, LAND, LOR, LXOR, BAND, BOR, BXOR = REDUCTIONS.values()
_ADVICE = {"SUM": "LOR", "PROD": "LAND", "MIN": "LAND", "MAX": "LOR"}


def reduction(op: Any, name: str) -> Reduction:
    """The core's reduction for plait.SUM or MPI.SUM, …; TypeError for anything else."""
    if isinstance(op, Reduction):
        return op
    module = sys.modules.get("mpi4py.MPI")
    if module is not None and isinstance(op, module.Op):
        for known, found in REDUCTIONS.items():
            if op == getattr(module, known):
                return found
        if op in (module.MINLOC, module.MAXLOC):
            raise TypeError(
                f"{name}: MINLOC and MAXLOC need pairs of value and rank; use plait.minloc(x) "
                "or plait.maxloc(x)"
            )
    possible = ", ".join(REDUCTIONS)
    raise TypeError(f"{name}: op is {op!r}; expected one of plait.{{{possible}}} or of MPI")


@functools.cache
def check_reduction(name: str, op: Reduction, dtype: Any) -> None:
    """TypeError where the dtype does not have the reduction."""
    if _core.reduce_is_defined(op.code, dtype.name):
        return
    if dtype.name == "bool" and op.name in _ADVICE:
        hint = f"; use {_ADVICE[op.name]}, or cast to an integer"
    elif jnp.issubdtype(dtype, jnp.complexfloating) and op.name in ("MIN", "MAX"):
        hint = "; complex numbers have no order: reduce the real and the imaginary part"
    elif jnp.issubdtype(dtype, jnp.inexact) and dtype.name in _core.dtypes():
        is_bitwise = not _core.reduce_is_defined(op.code, "float32")
        hint = "; cast to an integer or bool" if is_bitwise else "; cast to a wider float"
    else:
        hint = ""
    raise TypeError(f"{name}: {op.name} is not defined for {dtype.name}{hint}")


def replicated(value: Any, name: str) -> int:
    """How the gradient treats the operand: exact, replicated, or replicated and checked."""
    if isinstance(value, str) and value == "check":
        return _coll_rules.CHECKED
    if not isinstance(value, bool):
        raise TypeError(f'{name}: replicated is {value!r}; expected False, True or "check"')
    if value and _core.is_on(b"PLAIT_CHECK_REPLICATED"):
        return _coll_rules.CHECKED
    return _coll_rules.REPLICATED if value else _coll_rules.EXACT


# ---- arrays --------------------------------------------------------------------------------------


@functools.cache
def _is_movable(dtype: Any, has_keys: bool) -> bool:
    is_key = jnp.issubdtype(dtype, jax.dtypes.extended)
    return has_keys if is_key else dtype.name in _core.dtypes()


def as_array(x: Any, name: str, argument: str = "x") -> jax.Array:
    """The operand as a JAX array; TypeError if it is not an array."""
    is_ref = isinstance(x, jax.core.Tracer) and not isinstance(x.aval, jax.core.ShapedArray)
    if isinstance(x, jax.Array) and not is_ref:
        return x
    if isinstance(x, np.ma.MaskedArray):
        raise TypeError(f"{name}: {argument} is a masked array; pass x.filled(value)")
    try:
        if is_ref:  # some JAX releases call a reference an array, too
            raise TypeError
        return jnp.asarray(x)
    except (TypeError, ValueError) as error:  # its text names an internal function of JAX
        if isinstance(x, np.ndarray) and x.dtype.isnative and x.dtype.name in _core.dtypes():
            raise
        what = "None" if x is None else type(x).__name__
        what = "a Ref" if is_ref else what
        what = f"of dtype {x.dtype}" if isinstance(x, np.ndarray) else what
        raise TypeError(
            f"{name}: {argument} is {what}; expected an array of a dtype that JAX has"
        ) from error


def is_exact(x: Any) -> bool:
    """Whether the array has integers or bools."""
    return jnp.issubdtype(x.dtype, jnp.integer) or x.dtype == bool


def as_float(x: jax.Array) -> jax.Array:
    """Integers and bools as the floating-point numbers that jax.numpy makes of them.

    Those of 64 bits in double precision, others in single precision. Other arrays as they are.
    """
    if not is_exact(x):
        return x
    real = jnp.float64 if x.dtype.itemsize == 8 else jnp.float32
    return x.astype(jax.dtypes.canonicalize_dtype(real))


def array(x: Any, name: str, argument: str = "x", has_keys: bool = True) -> jax.Array:
    """The operand as an array whose dtype can be moved; has_keys: PRNG keys can, too."""
    x = as_array(x, name, argument)
    if not _is_movable(x.dtype, has_keys):
        known = ", ".join(_core.dtypes())
        raise TypeError(
            f"{name}: {argument} has dtype {x.dtype.name}, which cannot be moved; expected one of "
            f"{known}"
        )
    return x


def is_key(x: Any) -> bool:
    """Whether these are typed PRNG keys."""
    return jnp.issubdtype(x.dtype, jax.dtypes.prng_key)


def check_blocks(x: Any, size: int, name: str) -> None:
    """One block of axis 0 for each rank."""
    if x.ndim == 0 or x.shape[0] != size:
        raise ValueError(
            f"{name.capitalize()} input must have shape (nproc, ...), got {x.shape} with "
            f"nproc {size}"
        )


def check_rows(x: Any, n_rows: int, name: str, says: str) -> None:
    """As many rows as the counts say in all."""
    if x.ndim == 0 or x.shape[0] != n_rows:
        have = "no axis" if x.ndim == 0 else f"{x.shape[0]} rows"
        raise ValueError(f"{name}: x has {have} (shape {x.shape}), but {says} {n_rows}")


def token(value: Any, name: str) -> Any:
    """An explicit token or None."""
    if value is not None and not hasattr(value, "dtype"):
        raise TypeError(f"{name}: token is {type(value).__name__}; expected an array")
    return value


# ---- static integers -----------------------------------------------------------------------------


def integer(value: Any, name: str, argument: str) -> int:
    """A static integer; the texts are those that users of mpi4jax know."""
    if isinstance(value, jax.core.Tracer):
        raise TypeError(
            f'{name} got unexpected type for argument "{argument}". An abstract tracer was '
            "passed where a concrete value is expected: pass the argument through "
            "static_argnums or static_argnames of jax.jit"
        )
    if not isinstance(value, bool):
        try:
            return operator.index(value)
        except TypeError:
            pass
    raise TypeError(
        f'{name} got unexpected type for argument "{argument}" '
        f"(expected: integer, got: {type(value)})"
    )


def _numbered(value: Any, name: str, argument: str) -> int:
    """Returns ordinary ranks unchanged; maps special values, also mpi4py's, to plait's."""
    number = integer(value, name, argument)
    module = sys.modules.get("mpi4py.MPI")
    if isinstance(value, _comm.Special):
        return value
    if module is not None and number < 0:
        return {module.PROC_NULL: PROC_NULL, module.ANY_SOURCE: ANY_SOURCE}.get(number, number)
    return number


def rank(value: Any, size: int, name: str, argument: str, also: tuple[int, ...] = ()) -> int:
    """A rank of the communicator, or one of the special values in plait's numbering."""
    number = _numbered(value, name, argument)
    is_special = isinstance(number, _comm.Special) and number in also
    if not 0 <= number < size and not is_special:
        raise ValueError(
            f"{name}: {argument} {value} is not a rank of this communicator (size {size})"
        )
    return int(number)


def partner(value: Any, size: int, name: str, argument: str, also: tuple[int, ...]) -> int:
    """As `rank`; but while a program is traced, a missing rank is left to the core.

    A branch of jax.lax.cond that this rank never takes may name such a rank, as the first and the
    last rank of a chain do. An offset tells negative ranks that are not special from special ones.
    """
    number = _numbered(value, name, argument)
    is_plain = not isinstance(number, _comm.Special) and abs(number) <= -_NEGATIVE
    if not is_plain or _jax.trace_state_clean():
        return rank(value, size, name, argument, also)
    return number if number >= 0 else number + _NEGATIVE


def tag(value: Any, name: str, argument: str, is_receive: bool) -> int:
    """The tag of a message, for receives also ANY_TAG."""
    number = integer(value, name, argument)
    module = sys.modules.get("mpi4py.MPI")
    is_any = value is ANY_TAG or (module is not None and number == module.ANY_TAG)
    if is_receive and is_any:
        return int(ANY_TAG)
    if not 0 <= number <= MAX_TAG:
        raise ValueError(f"{name}: {argument} {number} is outside 0..{MAX_TAG}")
    return number


def _sequence(values: Any, name: str, argument: str) -> list:
    if isinstance(values, jax.core.Tracer):
        integer(values, name, argument)
    try:
        return list(values)
    except TypeError:
        raise TypeError(
            f'{name} got unexpected type for argument "{argument}" '
            f"(expected: sequence of integers, got: {type(values)})"
        ) from None


def _integers(values: Any, name: str, argument: str) -> tuple[int, ...]:
    given = _sequence(values, name, argument)
    return tuple(integer(v, name, f"{argument}[{i}]") for i, v in enumerate(given))


def _check_counts(values: Sequence[int], n: int, name: str, argument: str) -> None:
    if len(values) != n:
        raise ValueError(f"{name}: {argument} has {len(values)} entries, expected {n}")
    if min(values, default=0) < 0:
        raise ValueError(f"{name}: {argument} has the negative entry {min(values)}")


def counts(values: Any, group: Group, name: str) -> tuple[int, ...]:
    """Rows of each rank, equal on all ranks."""
    given = _integers(values, name, "counts")
    _check_counts(given, group.size, name, "counts")
    if group.rank is None and len(set(given)) > 1:
        raise ValueError(
            f"{name}: counts {given} differ, but inside shard_map every device has the same shape"
        )
    return given


def table(values: Any, group: Group, name: str) -> tuple[int, ...]:
    """Rows from each rank to each, by sending rank; equal on all ranks."""
    n = group.size
    given = _sequence(values, name, "counts")
    rows = [_integers(row, name, f"counts[{i}]") for i, row in enumerate(given)]
    if len(rows) != n:
        raise ValueError(f"{name}: counts has {len(rows)} rows, expected {n}")
    for i, row in enumerate(rows):
        _check_counts(row, n, name, f"counts[{i}]")
    columns = list(zip(*rows, strict=True))
    if group.rank is None and max(len(set(map(sum, rows))), len(set(map(sum, columns)))) > 1:
        raise ValueError(
            f"{name}: the sums of counts' rows or columns differ, but inside shard_map every "
            "device has the same shape"
        )
    return tuple(count for row in rows for count in row)


def here(group: Group) -> int:
    """A rank to take shapes from: this rank, or any rank inside shard_map, where all are alike."""
    return 0 if group.rank is None else group.rank


# ---- what receives leave behind ------------------------------------------------------------------

_statuses: dict[int, tuple[Any, int]] = {}


@contextlib.contextmanager
def status(value: Any, name: str) -> Iterator[int]:
    """A small number for an MPI.Status while a call is made or traced; 0 for None.

    Traced programs and started operations need the number and the object later, so both are kept as
    long as the process lives. An eager call gives the number back: the next call, with any object,
    then finds the same program.
    """
    if value is None:
        yield 0
        return
    module = sys.modules.get("mpi4py.MPI")
    if module is None or not isinstance(value, module.Status):
        raise TypeError(f"{name}: status is {type(value).__name__}; expected MPI.Status")
    address = module._addressof(value)
    is_over_then = _eager.now.binder is None and _jax.trace_state_clean()
    if address in _statuses or not is_over_then:
        if address not in _statuses:
            _statuses[address] = (value, _core.keep_status(address))
        yield _statuses[address][1]
        return
    number = _core.keep_status(address)
    try:
        yield number
    finally:
        _core.forget_status(number)
