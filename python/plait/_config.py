"""Choices of backend and tuning: they never change results beyond rounding."""

from types import TracebackType
from typing import Any

from plait import _core, _errors, _exit, _jax


class _Restore:
    """Puts choices back that were there before, at the end of a ``with`` block."""

    def __init__(self, before: dict[str, str]):
        self._before = before

    def __enter__(self) -> None:
        if _jax.is_staging():
            _choose(self._before)
            raise _errors.Error(
                "plait.config.set: a block within a function that JAX traces is over before the "
                "program runs, and would choose nothing for it; expected around the call of the "
                "function"
            )

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        _choose(self._before)


def _text(name: str, value: Any) -> str:
    if name not in _core.keys():
        keys = ", ".join(_core.keys())
        raise ValueError(f"plait.config has no key {name!r}; expected one of {keys}")
    choices = ", ".join(_core.keys()[name].choices)
    if not isinstance(value, str):
        raise TypeError(f"{name}: {type(value).__name__}; expected one of {choices}")
    if "\0" in value:  # where C's text ends
        raise ValueError(f"{name}: {value!r}; expected one of {choices}")
    return value


def _before(name: str) -> str:
    """What is chosen; the default where the environment names a value that there is not."""
    try:
        return _core.chosen(name)
    except ValueError:
        return _core.keys()[name].choices[0]


def _choose(values: dict[str, Any]) -> dict[str, str]:
    """Chooses all or nothing; what was chosen before.

    Queued work is done first: it was called under the choices that were, on every rank.
    """
    texts = {name.lower(): _text(name.lower(), value) for name, value in values.items()}
    before = {name: _before(name) for name in texts}
    _exit.flush()
    try:
        for name, text in texts.items():
            _core.choose(name, text)
    except BaseException:
        for name, text in before.items():
            _core.choose(name, text)
        raise
    return before


class Config:
    """The choices of this process: which backend carries what, and how transforms exchange.

    ``plait.config.update('transpose_comm_backend', 'MPI')`` chooses, in any letter case;
    ``plait.config.transpose_comm_backend`` is what is chosen. A choice has effect at once, on
    programs that are compiled, too: nothing is compiled again. What was called before is
    done under the choices that were there. All ranks choose the same: an operation for which
    they have not is a `plait.MismatchError`.

    Collective: no.  Shapes: none.
    Raises: ValueError that lists the keys or choices there are; `plait.Error` for a backend that
    needs devices which are not here, and for a ``with`` block in a function that JAX traces.
    Adjoint: none.  Source: own; docs/tuning.md has the keys.

    Example:
        >>> import plait
        >>> plait.config.update("transpose_comm_backend", "mpi")
        >>> plait.config.transpose_comm_backend
        'MPI'
        >>> plait.config.update("transpose_comm_backend", "auto")
    """

    def update(self, name: str, value: str) -> None:
        """Chooses ``value`` for the key ``name``, from the next operation on."""
        _choose({name: value})

    def set(self, **values: str) -> _Restore:
        """Chooses several at once; in ``with plait.config.set(...):`` until the block ends."""
        return _Restore(_choose(values))

    def read(self) -> dict[str, str]:
        """All keys, and what is chosen for each."""
        return {name: _core.chosen(name) for name in _core.keys()}

    def __getattr__(self, name: str) -> str:
        if name in _core.keys():
            return _core.chosen(name)
        keys = ", ".join(_core.keys())
        raise AttributeError(f"plait.config has no key {name!r}; expected one of {keys}")

    def __setattr__(self, name: str, value: str) -> None:
        self.update(name, value)

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *_core.keys()]

    def __repr__(self) -> str:
        return f"plait.config({', '.join(f'{k}={v!r}' for k, v in self.read().items())})"


config = Config()
