"""Matrices dealt out to the devices of a manual region (`jax.shard_map`), where arrays are local.

The functions of `_dense` work on them as on global arrays, with all their derivatives: a `Matrix`
then holds the part of one device, and its `Inside` says which other devices there are.
"""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax
from plait import _args, _call, _groups, _layout, _move, _reduce
from plait._dealt import Deal, Whole
from plait._split import Spec


@dataclasses.dataclass(frozen=True)
class Inside(Deal):
    """Dealt out to the devices along mesh axes of the manual region that is being traced."""

    group: Any = None

    @property
    def axes(self) -> tuple[str, ...]:
        """The mesh axes, which number the ranks."""
        return self.group.over

    @property
    def n_ranks(self) -> int:
        """Devices that columns are dealt out to."""
        return self.group.size

    @property
    def n_parts(self) -> int:
        """Here an array is that of one device."""
        return 1

    @property
    def whole(self) -> "WholeInside":
        """The deal of right-hand sides that every device has whole."""
        return WholeInside(None, self.block, self.group)

    def redistribute(self, x: Any, src: Spec, dst: Spec, **given: Any) -> Any:
        """This device's part of the result; any axes in src and dst stand for the group's."""
        shape, turn = given["shape"], given.get("turn", False)
        of_src, of_dst = given.get("blocks", (None, None))
        out_shape = given["dims"]
        words = {
            "from": self._words(shape, src, x.shape, of_src),
            "to": self._words(shape[::-1] if turn else shape, dst, out_shape, of_dst),
            "turn": int(turn),
        }
        tree = _call.Tree(x, "redistribute")
        run = _call.run
        return run("redistribute", "dense", tree, self.group, None, out_shape=out_shape, **words)

    def _words(
        self,
        shape: Sequence[int],
        spec: Spec,
        stored: Sequence[int],
        blocks: Sequence[int] | None,
    ) -> tuple[int, ...]:
        splits = [(0,) if axes else () for axes in spec]
        return _layout.words(shape, (self.n_ranks,), splits, stored, blocks)

    def everywhere(self, parts: Any) -> Any:
        """The sum of one number of each device, on all of them."""
        return _reduce.allreduce(parts, _args.SUM, comm=self.axes)

    def in_order(self, parts: Any, n: int) -> Any:
        """One entry for each of n columns, on all devices: the first axis is dealt out."""
        parts = parts[:n]  # no column below n lies further behind
        every = _move.allgather(parts, comm=self.axes)
        every = every.reshape(-1, *parts.shape[1:])
        column = np.arange(n)
        block = column // self.block
        slot = block // self.n_ranks * self.block + column % self.block
        return every[block % self.n_ranks * len(parts) + slot]

    def of_all(self, ct: Any) -> Any:
        """The sum over the devices; up to a factor if the region tracks types and it is one."""
        return self.everywhere(ct)

    def one_value(self, x: Any) -> Any:
        """A value that all devices have alike; its type says so if the region tracks types."""
        return _move.bcast(x, 0, comm=self.axes) if self.group.checks else x

    def by_rank(self, function: Callable, matrices: tuple, whole: tuple, to: Spec) -> Any:
        """Calls the function on this device's parts."""
        return function(lax.axis_index(self.axes), *matrices, *whole)

    def columns(self, n: int) -> Any:
        """The column numbers of this device's part; n and more behind the last one."""
        i = jnp.arange(self.stored(n), dtype=jnp.int32)
        block, n_ranks = jnp.int32(self.block), jnp.int32(self.n_ranks)
        return (i // block * n_ranks + lax.axis_index(self.axes)) * block + i % block


@dataclasses.dataclass(frozen=True)
class WholeInside(Whole):
    """Not dealt out: every device of the region has all columns, and the same ones."""

    group: Any = None

    @property
    def dealt(self) -> Inside:
        """The deal of the matrices."""
        return Inside(None, self.block, self.group)

    def redistribute(self, x: Any, src: Spec, dst: Spec, **given: Any) -> Any:
        """As the deal of the matrices does."""
        return self.dealt.redistribute(x, src, dst, **given)


def along(axis_name: Any, block: int, name: str) -> Inside:
    """The deal for the devices along these mesh axes."""
    comm = axis_name if isinstance(axis_name, str) else tuple(axis_name)
    return Inside(None, block, _groups.of(comm, name, None))
