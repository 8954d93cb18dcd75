"""What primitives would be lowered to, found without a compiler or devices.

A rule that lowers a primitive of plait takes `Asked` in place of JAX's context. The rule leaves
there the operation of the core that it would call, or the jaxpr that it would lower instead.
"""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import jax


@dataclasses.dataclass(frozen=True)
class Imagined:
    """A device of a program that is inspected, not compiled."""

    platform: str = "cpu"


@dataclasses.dataclass(frozen=True)
class Called:
    """An operation of the core as one rank calls it: name, parameters, operands and results."""

    name: str
    params: dict[str, Any]
    arrays: list[tuple[str, tuple[int, ...]]]


def like(avals: Sequence) -> list[jax.ShapeDtypeStruct]:
    """Operands of these types, to trace a function with."""
    return [
        jax.ShapeDtypeStruct(
            a.shape,
            a.dtype,
            sharding=None if a.sharding.mesh.empty else a.sharding,
            weak_type=a.weak_type,
        )
        for a in avals
    ]


class Asked:
    """Stands in for JAX's lowering context, for a program of so many devices."""

    platforms = ("cpu",)
    tokens_out = None

    def __init__(self, avals_in: Sequence, avals_out: Sequence, n_devices: int):
        self.avals_in, self.avals_out = avals_in, avals_out
        self.devices = (Imagined(),) * n_devices
        self.called: Called | None = None
        self.jaxpr: Any = None

    def replace(self, avals_in: Sequence) -> "Asked":
        """The same, with operands of other types."""
        self.avals_in = avals_in
        return self

    def call(self, row: Any, params: dict, results: Sequence) -> Sequence:
        """Records the core's operation; results: avals, possibly with tokens at the end."""
        arrays = (*self.avals_in[: row.n_args], *results[: row.n_rets])
        self.called = Called(row.name, params, [(a.dtype.name, a.shape) for a in arrays])
        return results

    def trace(self, fun: Callable, avals: Sequence) -> Sequence:
        """Records what ``fun`` does with operands of these types."""
        self.jaxpr, results = jax.make_jaxpr(fun, return_shape=True)(*like(avals))
        return results
