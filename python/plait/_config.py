"""Choices of backend and tuning: they never change results beyond rounding."""

from types import TracebackType
from typing import Any

from plait import _core, _errors, _exit, _jax, _queues


class _Restore:
    """Restores earlier choices at the end of a ``with`` block."""

    def __init__(self, values: dict[str, str]):
        self._values = values
        self._before, self._is_over = _choose(values), False

    def __enter__(self) -> None:
        if self._is_over:  # a kept object may be used again
            self._before = _choose(self._values)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        _choose(self._before)
        self._is_over = True


def _texts(values: dict[str, Any]) -> dict[str, str]:
    texts = {str(name).lower(): _text(str(name).lower(), value) for name, value in values.items()}
    if len(texts) < len(values):
        raise ValueError(f"plait.config: a key is given twice: {', '.join(values)}")
    return texts


def _text(name: str, value: Any) -> str:
    if name not in _core.keys():
        keys = ", ".join(_core.keys())
        raise ValueError(f"plait.config has no key {name!r}; expected one of {keys}")
    choices = ", ".join(_core.keys()[name].choices)
    if not isinstance(value, str):
        raise TypeError(f"{name}: {type(value).__name__}; expected one of {choices}")
    if "\0" in value:  # C's text would end there
        raise ValueError(f"{name}: {value!r}; expected one of {choices}")
    return value


def _before(name: str) -> str:
    """The current choice; the default if the environment names a value that does not exist."""
    try:
        return _core.chosen(name)
    except ValueError:
        return _core.keys()[name].choices[0]


def _choose(values: dict[str, Any]) -> dict[str, str]:
    """Applies all choices or none; returns the earlier ones.

    Waits for queued work first: on every rank, that work was called under the earlier choices.
    """
    if _jax.is_staging():
        raise _errors.Error(
            "plait.config: called in a function that JAX traces, where it would choose for the "
            "tracing and not for the runs; expected around the call of the function"
        )
    texts = _texts(values)
    before = {name: _before(name) for name in texts}
    limit = _exit.time_limit()
    if not _queues.is_idle_within(limit):
        raise _errors.TimeoutError(
            f"plait.config: programs that were called earlier have not ended after {limit:g} s "
            "(PLAIT_TIMEOUT); do not call plait.config in a callback of one of them"
        )
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

    ``plait.config.update('transpose_comm_backend', 'MPI')`` makes a choice, in any letter case;
    ``plait.config.transpose_comm_backend`` is the current choice. A choice takes effect at once,
    also for compiled programs, without compiling again. Calls made before it still run under the
    earlier choices. All ranks must choose the same: an operation whose ranks have different
    choices is a `plait.MismatchError`.

    Collective: no.  Shapes: none.
    Raises: ValueError that lists the possible keys or choices; `plait.Error` for a backend that
    needs devices which are not here, and in a function that JAX traces; `plait.TimeoutError` if
    programs that were called before do not end, as in a callback of one of them.
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
        """Chooses several at once; as ``with plait.config.set(...):`` until the block ends."""
        return _Restore(values)

    def read(self) -> dict[str, str]:
        """All keys, and the choice for each."""
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


config: Config = Config()
