"""Starts an operation in one place and waits for its result in another."""

import functools
import inspect
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from plait import _args, _core, _eager, _jax, _ops, _sites, _started


class Handle:
    """A started operation, from `start` to `wait`."""

    def __init__(self, call: tuple, ticket: Any, slots: list):
        self._call, self._ticket, self._slots = call, ticket, slots
        self._trace = _jax.trace_state()

    def __copy__(self) -> "Handle":
        return self  # a started operation exists only once

    def __deepcopy__(self, memo: dict) -> "Handle":
        return self

    def __repr__(self) -> str:
        return f"<plait.start of {self._ticket}>"

    def __del__(self) -> None:
        numbers = set() if self._ticket.is_waited else _begun(self._slots)
        if numbers:
            warnings.warn(f"plait.start of {self._ticket}: nobody waited for it", stacklevel=2)
        for number in numbers:
            _core.forget_started(number)


def _begun(slots: list) -> set[int]:
    """The numbers of all started operations so far, also within eager derivatives and batches."""
    found: set[int] = set()
    for slot in slots:
        array = _jax.eager_array(slot)
        if array is not None:
            found |= set(_started.numbers(array))
    return found


def _leaves(handle: Handle) -> Any:
    raise TypeError(
        f"plait.start: the handle of {handle._ticket} leaves the function that started it; "
        "call plait.wait there and pass the result on"
    )


jax.tree_util.register_pytree_node(Handle, _leaves, lambda _, leaves: leaves)


def _check(operation: Any) -> str:
    """The name, if this is a function of the rank model."""
    if isinstance(operation, functools.partial):
        return _check(operation.func)
    module = getattr(operation, "__module__", None) or ""
    is_ours = module.partition(".")[0] == "plait" and inspect.isfunction(operation)
    if not is_ours or "comm" not in inspect.signature(operation).parameters:
        raise TypeError(
            f"start: {operation!r} is no operation of plait with comm=; expected for instance "
            "plait.allreduce"
        )
    return operation.__name__


# `wait` calls the operation again; by then its arguments may have changed, or be gone.


def _listed(x: Any) -> Any:
    """An iterator as a tuple, which can be read again."""
    return tuple(x) if isinstance(x, Iterator) else x


def _kept(x: Any) -> Any:
    """A copy of an operand whose values are read a second time."""
    if isinstance(x, np.ndarray):
        return x.copy()
    return jnp.array(x, copy=True) if _is_there(x) else x


def _stand_in(x: Any) -> Any:
    """Replaces an operand that has been donated meanwhile; nobody needs its values."""
    if not _is_there(x) or not x.is_deleted():
        return x
    zero = jax.random.key(0, impl=jax.random.key_impl(x)) if _args.is_key(x) else 0
    return jnp.full(x.shape, zero, x.dtype)


def _is_there(x: Any) -> bool:
    """Whether x is an array with concrete values."""
    return isinstance(x, jax.Array) and not isinstance(x, jax.core.Tracer)


@_eager.of_a_rank
def start(operation: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Begin ``operation(*args, **kwargs)`` and return at once; `wait` gives the result.

    Between the two calls the operation runs by itself, on a thread and copies of plait's own, while
    the program computes something else. ``operation`` is any function of plait with ``comm=``.
    Wait for each handle exactly once, in the function (or loop body) that started it. With
    ``token=``, `start` returns ``(handle, token)``, and `wait` takes and returns a token.

    The order of started operations on one communicator:

    * Collectives run in the order in which they were started.
    * Transfers that could take each other's message run in that order, too. They do not wait for
      collectives or for transfers of other messages.
    * Operations called without `start` queue behind the started ones in the same way.

    Collective: as ``operation``.  Shapes: those of ``operation``.
    Raises: TypeError for a function that is not an operation; what ``operation`` raises for its
    arguments. ValueError when a program is compiled that never waits for the handle.
    Adjoint: wait for the adjoint of ``operation``, which the adjoint of `wait` started.
    Source: MPI 4.0, 3.7 and 6.12 (nonblocking operations).

    Example:
        >>> import plait, jax.numpy as jnp
        >>> x = jnp.ones((2, 2))
        >>> handle = plait.start(plait.allreduce, x, plait.SUM)
        >>> z = x @ x  # meanwhile
        >>> (plait.wait(handle, after=z) + z).tolist()
        [[3.0, 3.0], [3.0, 3.0]]
    """
    ticket = _started.Ticket(_check(operation), _sites.here())
    begin = _started.BeginFirst(ticket)
    args = tuple(map(_listed, args))
    kwargs = {name: _listed(x) for name, x in kwargs.items()}
    token = kwargs.get("token")
    try:
        with _ops.bound_by(begin):
            operation(*args, **kwargs)
    except _started.Begun:
        token = begin.chain.token
    if begin.needs_operands or not _jax.trace_state_clean():
        args, kwargs = jax.tree.map(_kept, (args, kwargs))
    handle = Handle((operation, args, kwargs), ticket, begin.slots)
    return handle if token is None else (handle, token)


@_eager.of_a_rank
def wait(handle: Any, *, after: Any = None, token: Array | None = None) -> Any:
    """Wait for the operation that `start` began, and return its result.

    ``after`` names arrays to compute before the program waits. Their values are not used. Without
    ``after`` the compiler chooses when to wait, which may be too early. Failures of the operation
    are raised here. ``token`` is needed if `start` was given one; it follows the token that `start`
    returned.

    Collective: no; waits for this rank's part.  Shapes: those of the operation; ``after``: any
    pytree.
    Raises: ValueError for a handle that was waited for before, or was started in another traced
    function (for instance outside of this loop body); TypeError for an argument that is not a
    handle, and for a token too many or too few.
    Adjoint: start of the operation's adjoint.
    Source: MPI 4.0, 3.7.3 (MPI_Wait).

    Example:
        >>> import plait, jax.numpy as jnp
        >>> plait.wait(plait.start(plait.bcast, jnp.arange(3), 0)).tolist()
        [0, 1, 2]
    """
    if not isinstance(handle, Handle):
        raise TypeError(f"wait: {type(handle).__name__} is no handle of plait.start")
    operation, args, kwargs = handle._call
    ticket = handle._ticket
    if handle._trace != _jax.trace_state():
        raise ValueError(
            f"wait: {ticket}, in another function, loop body or transformation; "
            "call start and wait in the same one"
        )
    if ticket.is_waited:
        raise ValueError(f"wait: {ticket}, was waited for already")
    if (token is None) != (kwargs.get("token") is None):
        rest = "needs token=" if token is None else "was started without token="
        raise TypeError(f"wait: {ticket}, {rest}")
    arrays = [_args.array(leaf, "wait", "after") for leaf in jax.tree.leaves(after)]
    ticket.is_waited = True
    args, kwargs = jax.tree.map(_stand_in, (args, kwargs))
    if token is not None:
        kwargs = kwargs | {"token": token}
    with _ops.bound_by(_started.Await(handle._slots, ticket, arrays)):
        return operation(*args, **kwargs)
