"""The exceptions of plait, and how the text of a failure becomes one of them."""

import builtins
import contextlib
import re
from collections.abc import Callable, Iterator
from typing import Any

import jax
import numpy as np
from plait import _jax, _jax_programs, _xla


class Error(jax.errors.JaxRuntimeError):
    """A failure in plait's core; its subclasses say which kind."""


class ArgumentError(Error, ValueError):
    """An argument that only a running program could judge, such as a tag beyond MPI's largest."""


class MismatchError(Error):
    """Ranks called different operations, or the same one with different arguments."""


class ReplicationError(MismatchError):
    """What was declared to be one value on all ranks (replicated=True) is not."""


class TruncationError(Error):
    """A message was longer than the array that receives it."""


class TimeoutError(Error):  # noqa: A001 - the name is part of the interface
    """A peer did not arrive in time."""


class PeerError(Error):
    """Another rank failed in the same operation, or is gone."""


class CommError(Error):
    """The communicator is freed, null, foreign or unknown."""


class TransportError(Error):
    """MPI or the operating system reported a failure."""


class MemoryError(Error, builtins.MemoryError):  # noqa: A001 - the name is part of the interface
    """There is not enough memory for the work arrays of an operation."""


class LinAlgError(Error, np.linalg.LinAlgError):
    """A matrix does not have the requested factorization."""


_KINDS = {
    kind.__name__: kind
    for kind in (
        Error,
        ArgumentError,
        MismatchError,
        ReplicationError,
        TruncationError,
        TimeoutError,
        PeerError,
        CommError,
        TransportError,
        MemoryError,
        LinAlgError,
    )
}
for _kind in _KINDS.values():
    _kind.__module__ = "plait"  # where users find it, and what a traceback says
# Failures that were raised to the program, which knows of them at exit, each with the number of the
# latest failure of all at that time.
_seen: dict[str, int] = {}
_seen_of: dict[str, bool] = {}  # by communicator: whether each said that another gave up
latest_failure: list[Callable[[], tuple[str, int]]] = []  # the core's
_RANK = re.compile(r"\brank \d+ of\b")
_OF = re.compile(r"\brank of communicator #(\d+), ")
_GAVE_UP = "has given up this communicator"
_PATTERN = re.compile(r"plait\.(\w+): (.*)", re.DOTALL)
_TWO_MESHES = "mesh should be the same across the entire program"  # JAX's, for want of the devices
_ONE_MESH = (
    "JAX takes only one mesh in a program with operations of plait, as in a program with "
    "callbacks; instead of a second mesh, split one array axis over several mesh axes, "
    'P(("a", "b")), or move arrays with jax.device_put between two programs'
)


def _failure(error: Exception | str) -> str:
    """The text of a failure, equal on all devices of this process; each has an error of its own."""
    text = str(error)
    found = _PATTERN.search(text)  # without the surrounding text, which differs for each callback
    return _RANK.sub("rank of", found.group(0).strip().partition("\n")[0] if found else text)


def named(error: Exception) -> Exception:
    """The plait exception that the text of ``error`` names, else ``error`` itself."""
    if isinstance(error, Error):
        return error
    if _jax.is_lost_order(error):
        return Error(f"an operation is inside something that drops its order: {_jax.CURES}")
    if isinstance(error, ValueError) and str(error).startswith(_TWO_MESHES):
        return ValueError(f"{error}. {_ONE_MESH}")
    found = _PATTERN.search(str(error))
    kind = _KINDS.get(found.group(1)) if found else None
    if kind is not None:
        _jax_programs.forget_failed()
        _see(_failure(error))
    return error if kind is None else kind(found.group(2).strip())


def advice(error: BaseException) -> str:
    """A hint for a rank whose wait for others has failed; or ""."""
    return _xla.advice() if isinstance(named(error), TimeoutError | MismatchError) else ""


def _see(text: str) -> None:
    if text in _seen or len(_seen) < 1000:
        _seen[text] = latest_failure[0]()[1]
        for number in _OF.findall(text):
            _seen_of[number] = _seen_of.get(number, True) and _GAVE_UP in text


def _follows(text: str) -> bool:
    """Whether it is another device's part of a failure that the program has seen.

    One device sees the cause; the others of its process see that it, or a peer, gave up.
    """
    found = _OF.search(text)
    is_known = found is not None and found.group(1) in _seen_of
    return is_known and (_GAVE_UP in text or _seen_of[found.group(1)]) and _xla.n_devices() > 1


def is_of_plait(error: Exception) -> bool:
    """Whether an operation of plait has failed, not something else in this or another program."""
    return _PATTERN.search(str(error)) is not None


def was_raised(error: Exception | str) -> bool:
    """Whether the program has seen this failure of plait.

    It has not seen a failure of a later call with the same words. With several devices, each of
    them fails.
    """
    text, (latest, number) = _failure(error), latest_failure[0]()
    is_again = _failure(latest) == text and number > _seen.get(text, number)
    return text in _seen and not (is_again and _xla.n_devices() == 1) or _follows(text)


def from_status(name: str, text: str) -> Exception:
    """The exception of a status of the C core that was returned to Python."""
    if name in ("INVALID", "OVERFLOW"):
        return ValueError(text)
    if name == "NO_MEMORY":
        return MemoryError(text)
    return _KINDS.get(name.capitalize() + "Error", Error)(text)


@contextlib.contextmanager
def errors() -> Iterator[None]:
    """Raise failures of plait inside the ``with`` block under their own names.

    Collective: no.  Shapes: none.
    Raises: the subclass of `plait.Error` that is named in the text of a JaxRuntimeError.
    Adjoint: none.  Source: own.

    Example:
        >>> import plait, jax.numpy as jnp
        >>> with plait.errors():
        ...     y = plait.allreduce(jnp.ones(3), plait.SUM).block_until_ready()
    """
    try:
        yield
    except Exception as error:  # JAX raises ValueError for some codes
        other = named(error)
        if other is error:
            raise
        raise other from None


def block(x: Any) -> Any:
    """Wait until all arrays in the pytree ``x`` are computed, and return ``x``.

    Collective: no.  Shapes: any pytree.
    Raises: the failure of the computation, as its subclass of `plait.Error`.
    Adjoint: none.  Source: own.

    Example:
        >>> import plait, jax.numpy as jnp
        >>> plait.block(plait.allreduce(jnp.ones(3), plait.SUM)).shape
        (3,)
    """
    with errors():
        return jax.block_until_ready(x)
