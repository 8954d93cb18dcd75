"""What primitives would be lowered to, asked for without a compiler or devices.

A rule that lowers a primitive of plait takes `Asked` in the place of JAX's context. It leaves the
operation of the core that it would call there, or the jaxpr of what it would lower instead.
"""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import jax


@dataclasses.dataclass(frozen=True)
class Imagined:
    """A device of a program that is looked at and not compiled."""

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
    """In the place of JAX's context of a lowering, for a program of so many devices."""

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
        """Notes the core's operation; results: avals, of which some may be tokens, behind."""
        arrays = (*self.avals_in[: row.n_args], *results[: row.n_rets])
        self.called = Called(row.name, params, [(a.dtype.name, a.shape) for a in arrays])
        return results

    def trace(self, fun: Callable, avals: Sequence) -> Sequence:
        """Notes what ``fun`` does with operands of these types."""
        self.jaxpr, results = jax.make_jaxpr(fun, return_shape=True)(*like(avals))
        return results
