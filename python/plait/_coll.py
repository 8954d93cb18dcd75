"""The rank model: one process (or one device of a manual region) is one rank."""

import functools
import operator
import sys
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array
from plait import _comm, _core, _groups, _jax, _ops
from plait._comm import ANY_SOURCE, ANY_TAG, PROC_NULL


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
_ADVICE = {
    "bool": {"SUM": "LOR", "PROD": "LAND", "MIN": "LAND", "MAX": "LOR"},
    "complex": {"MIN": "the real part", "MAX": "the real part"},
}


def _reduction(op: Any, name: str) -> Reduction:
    """The core's reduction for plait.SUM or MPI.SUM, …; TypeError for anything else."""
    if isinstance(op, Reduction):
        return op
    module = sys.modules.get("mpi4py.MPI")
    if module is not None and isinstance(op, module.Op):
        for known, reduction in REDUCTIONS.items():
            if op == getattr(module, known):
                return reduction
        if op in (module.MINLOC, module.MAXLOC):
            raise TypeError(f"{name}: MINLOC and MAXLOC need pairs of value and rank")
    possible = ", ".join(REDUCTIONS)
    raise TypeError(f"{name}: op is {op!r}; expected one of plait.{{{possible}}} or mpi4py's")


@functools.cache
def _check_reduction(name: str, op: Reduction, dtype: Any) -> None:
    if _core.reduce_is_defined(op.code, dtype.name):
        return
    if dtype.name == "bool" and op.name in _ADVICE["bool"]:
        hint = f"; use {_ADVICE['bool'][op.name]}, or cast to an integer"
    elif jnp.issubdtype(dtype, jnp.complexfloating) and op.name in _ADVICE["complex"]:
        hint = "; complex numbers have no order, reduce real and imaginary part"
    elif jnp.issubdtype(dtype, jnp.inexact) and dtype.name in _core.dtypes():
        hint = "; cast to an integer or bool"
    else:
        hint = ""
    raise TypeError(f"{name}: {op.name} is not defined for {dtype.name}{hint}")


@functools.cache
def _is_movable(dtype: Any) -> bool:
    return jnp.issubdtype(dtype, jax.dtypes.extended) or dtype.name in _core.dtypes()


def _array(x: Any, name: str, argument: str) -> Array:
    """The operand as an array whose dtype can be moved."""
    if not isinstance(x, jax.Array):
        x = jnp.asarray(x)
    if not _is_movable(x.dtype):
        raise TypeError(f"{name}: {argument} has dtype {x.dtype.name}, which cannot be moved")
    return x


def _integer(value: Any, name: str, argument: str) -> int:
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


def _rank(value: Any, size: int, name: str, argument: str, also: tuple[int, ...]) -> int:
    """A rank of the communicator, or one of the special values in plait's numbering."""
    rank = _integer(value, name, argument)
    module = sys.modules.get("mpi4py.MPI")
    if isinstance(value, _comm.Special):
        rank = value
    elif module is not None and rank < 0:
        rank = {module.PROC_NULL: PROC_NULL, module.ANY_SOURCE: ANY_SOURCE}.get(rank, rank)
    is_special = isinstance(rank, _comm.Special) and rank in also
    if not 0 <= rank < size and not is_special:
        raise ValueError(
            f"{name}: {argument} {rank} is not a rank of this communicator (size {size})"
        )
    return int(rank)


def _tag(value: Any, name: str, argument: str, is_receive: bool) -> int:
    tag = _integer(value, name, argument)
    module = sys.modules.get("mpi4py.MPI")
    is_any = value is ANY_TAG or (module is not None and tag == module.ANY_TAG)
    if is_receive and is_any:
        return int(ANY_TAG)
    if not 0 <= tag <= 32767:
        raise ValueError(f"{name}: {argument} {tag} is outside 0..32767")
    return tag


def _token(token: Any, name: str) -> Any:
    if token is None:
        return None
    if not hasattr(token, "dtype"):
        raise TypeError(f"{name}: token is {type(token).__name__}; expected an array")
    return token


def _key_data(x: Array) -> tuple[Array, Any]:
    """Typed PRNG keys travel as their data; the second value makes keys of it again."""
    if jnp.issubdtype(x.dtype, jax.dtypes.prng_key):
        impl = jax.random.key_impl(x)
        return jax.random.key_data(x), lambda y: jax.random.wrap_key_data(y, impl=impl)
    return x, lambda y: y


def _answer(result: Any, token: Any, token_out: Any) -> Any:
    return result if token is None else (result, token_out)


def allreduce(
    x: Array,
    op: Any,
    *,
    comm: Any = None,
    token: Array | None = None,
    donate: bool = False,
) -> Array | tuple[Array, Array]:
    """Reduce elementwise over all ranks; the result is on every rank, with the same bits.

    ``op`` is ``plait.SUM``, ``PROD``, ``MIN``, ``MAX``, ``LAND``, ``LOR``, ``LXOR``,
    ``BAND``, ``BOR``, ``BXOR`` or mpi4py's of the same name. With ``token`` the call is
    ordered by that array instead of the effect and returns ``(result, token)``.
    ``donate=True`` lets the result take the memory of ``x``: an eager ``x`` is deleted;
    inside jit it helps where ``x`` was donated to the program or is used no more.
    ``comm`` may name mesh axes inside shard_map; over some of several axes it costs as many
    times the memory as there are groups.

    Collective: over ``comm``, in program order.  Shapes: any to the same.
    Raises: TypeError for an op that the dtype does not have.
    Adjoint: allreduce(SUM); PROD, MIN, MAX by notes in docs (PROD gathers: P times the
    memory).  Source: MPI 4.0, 6.9.6; oracle ``tests/python/oracle.py::allreduce``.

    Example:
        >>> import plait, jax.numpy as jnp
        >>> plait.allreduce(jnp.ones((2, 2)), plait.SUM).shape
        (2, 2)
    """
    reduction = _reduction(op, "allreduce")
    x = _array(x, "allreduce", "x")
    _check_reduction("allreduce", reduction, x.dtype)
    group = _groups.of(comm, "allreduce", token)
    if group.is_part:
        return group.part_allreduce(x, reduction.name, _token(token, "allreduce"))
    [y], out = _ops.call(
        "allreduce",
        x,
        token=_token(token, "allreduce"),
        reduce=reduction.code,
        donate=bool(donate),
        **group.params,
    )
    return _answer(y, token, out)


def bcast(
    x: Array,
    root: int,
    *,
    comm: Any = None,
    token: Array | None = None,
    donate: bool = False,
) -> Array | tuple[Array, Array]:
    """Give every rank the array of ``root``; elsewhere ``x`` says shape and dtype only.

    Any dtype, float8 and typed PRNG keys included. ``token``, ``donate``, and mesh axes as
    ``comm``: as in `allreduce`.

    Collective: over ``comm``, in program order.  Shapes: any to the same.
    Raises: TypeError, ValueError for a root that is no rank.
    Adjoint: reduce(SUM) to the root, 0 elsewhere.
    Source: MPI 4.0, 6.4; oracle ``tests/python/oracle.py::bcast``.

    Example:
        >>> import plait, jax.numpy as jnp
        >>> plait.bcast(jnp.arange(3), 0).tolist()
        [0, 1, 2]
    """
    group = _groups.of(comm, "bcast", token)
    root = _rank(root, group.size, "bcast", "root", ())
    x, back = _key_data(_array(x, "bcast", "x"))
    if group.is_part:
        y, out = group.part_bcast(x, root, _token(token, "bcast"))
        return _answer(back(y), token, out)
    [y], out = _ops.call(
        "bcast",
        x,
        token=_token(token, "bcast"),
        root=group.mesh_rank(root),
        at=root,
        donate=bool(donate),
        **group.params,
    )
    return _answer(back(y), token, out)


def barrier(*, comm: Any = None, token: Array | None = None) -> Array | None:
    """Wait until all ranks are here; with ``token`` it returns the next token.

    Collective: over ``comm``, in program order.  Shapes: none.
    Raises: TypeError for what is no communicator.  Adjoint: none.
    Source: MPI 4.0, 6.3; oracle ``tests/python/oracle.py::barrier``.

    Example:
        >>> import plait
        >>> plait.barrier()
    """
    group = _groups.of(comm, "barrier", token)
    return _ops.call("barrier", token=_token(token, "barrier"), **group.params)[1]


def sendrecv(
    sendbuf: Array,
    recvbuf: Array,
    source: int,
    dest: int,
    *,
    sendtag: int = 0,
    recvtag: int = ANY_TAG,
    comm: Any = None,
    status: Any = None,
    token: Array | None = None,
    donate: bool = False,
) -> Array | tuple[Array, Array]:
    """Send ``sendbuf`` to ``dest`` and receive from ``source`` at once.

    ``recvbuf`` is a template: its shape and dtype are those of the result, its values are
    the result where ``source`` is PROC_NULL. ``status`` (an ``MPI.Status``) is filled when
    the program runs. ``token`` as in `allreduce`; ``donate``: the result takes ``recvbuf``'s
    memory.

    Collective: no; who sends to whom must agree.  Shapes: ``recvbuf``'s to the same.
    Raises: TypeError, ValueError for ranks and tags; TruncationError on both partners where
    the message is longer than the template.
    Adjoint: sendrecv with source and dest, and both tags, exchanged.
    Source: MPI 4.0, 3.11; oracle ``tests/python/oracle.py::sendrecv``.

    Example:
        >>> import plait, jax.numpy as jnp
        >>> plait.sendrecv(jnp.arange(3), jnp.zeros(3, int), 0, 0).tolist()
        [0, 1, 2]
    """
    if _jax.manual_mesh() is not None and _jax.manual_mesh().size > 1:
        raise TypeError("sendrecv: not possible in shard_map; use jax.lax.ppermute there")
    group = _groups.of(comm, "sendrecv", token)
    sendbuf, _ = _key_data(_array(sendbuf, "sendrecv", "sendbuf"))
    recvbuf, back = _key_data(_array(recvbuf, "sendrecv", "recvbuf"))
    [y], out = _ops.call(
        "sendrecv",
        sendbuf,
        recvbuf,
        token=_token(token, "sendrecv"),
        source=_rank(source, group.size, "sendrecv", "source", (PROC_NULL, ANY_SOURCE)),
        dest=_rank(dest, group.size, "sendrecv", "dest", (PROC_NULL,)),
        sendtag=_tag(sendtag, "sendrecv", "sendtag", False),
        recvtag=_tag(recvtag, "sendrecv", "recvtag", True),
        status=_status_id(status),
        donate=bool(donate),
        **group.params,
    )
    return _answer(back(y), token, out)


_statuses: dict[int, tuple[Any, int]] = {}


def _status_id(status: Any) -> int:
    """A small number for an MPI.Status, which stays alive with the program."""
    if status is None:
        return 0
    module = sys.modules.get("mpi4py.MPI")
    if module is None or not isinstance(status, module.Status):
        raise TypeError(f"sendrecv: status is {type(status).__name__}; expected MPI.Status")
    address = module._addressof(status)
    if address not in _statuses:
        _statuses[address] = (status, _core.keep_status(address))
    return _statuses[address][1]


def create_token() -> Array:
    """A fresh token for ``token=``: a float32 zero. Any array will do, this one is cheap.

    Collective: no.  Shapes: to ().  Raises: nothing.  Adjoint: none.  Source: own.

    Example:
        >>> import plait, jax.numpy as jnp
        >>> y, token = plait.allreduce(jnp.ones(2), plait.SUM, token=plait.create_token())
    """
    return jnp.zeros((), jnp.float32)


def depend(value: Any, *ignored: Any) -> Any:
    """Return ``value`` and tie ``ignored`` results or tokens to it.

    JAX drops the adjoint of a result that a rank does not use, and the partner's adjoint
    would wait for it. Tied by a term of size zero, it runs, with cotangent zero.

    Collective: no.  Shapes: any pytrees; ``value``'s to the same.
    Raises: TypeError if ``value`` holds no array with derivatives.
    Adjoint: the cotangent of ``value``, zeros for ``ignored``.  Source: own.

    Example:
        >>> import plait, jax.numpy as jnp
        >>> plait.depend(jnp.ones(2), jnp.zeros(5)).tolist()
        [1.0, 1.0]
    """
    leaves, tree = jax.tree.flatten(value)
    places = [i for i, leaf in enumerate(leaves) if _ops.is_inexact(leaf)]
    if not places:
        raise TypeError("depend: value holds no array of a floating dtype to tie things to")
    first = jnp.asarray(leaves[places[0]])
    for x in jax.tree.leaves(ignored):
        if _ops.is_inexact(x):
            part = jnp.ravel(jnp.real(x))[:0]
            first = first + jnp.sum(part).astype(first.dtype)
    leaves[places[0]] = first
    return jax.tree.unflatten(tree, leaves)
