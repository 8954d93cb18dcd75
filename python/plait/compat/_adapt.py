"""Turns a function of plait into one with mpi4jax's signature."""

import functools
import inspect
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")

_UNKNOWN = ("donate", "replicated")  # arguments that mpi4jax does not have


class NotSet:
    """The default of an argument that must not be given, None included."""

    def __repr__(self) -> str:
        return "NOTSET"


def operation(
    function: Callable[P, Any], call: Callable[..., R], token: Any, module: str
) -> Callable[P, R]:
    """``call`` under the name and with the signature of ``function``, as mpi4jax has them."""
    known = inspect.signature(function).parameters.values()
    parameters = [
        p.replace(default=token) if p.name == "token" else p
        for p in known
        if p.name not in _UNKNOWN
    ]

    @functools.wraps(function)
    def adapted(*args: P.args, **kwargs: P.kwargs) -> R:
        return call(*args, **kwargs)

    return _named(adapted, function.__name__, parameters, module)


def capitalised(function: Callable[P, R]) -> Callable[P, R]:
    """As in the first README, where tags, comm and token could be positional."""
    parameters = [
        p.replace(kind=inspect.Parameter.POSITIONAL_OR_KEYWORD)
        for p in inspect.signature(function).parameters.values()
    ]
    signature = inspect.Signature(parameters)

    @functools.wraps(function)
    def adapted(*args: Any, **kwargs: Any) -> R:
        return function(**signature.bind(*args, **kwargs).arguments)

    return _named(adapted, function.__name__.capitalize(), parameters, function.__module__)


def _named(function: Any, name: str, parameters: list, module: str) -> Any:
    function.__name__ = function.__qualname__ = name
    function.__module__ = module
    function.__signature__ = inspect.Signature(parameters)
    function.__doc__ = f"plait.{name.lower()} as {module.rpartition('.')[2]} has it."
    return function
