"""The ranks and communicators of generated programs, and what one rank is told."""

import dataclasses
from typing import Any

import generate_calls as calls
import jax
import numpy as np
import plait


@dataclasses.dataclass(frozen=True)
class Space:
    """Where programs run.

    groups: for each communicator, its groups of ranks of the world, each in the group's order.
    topologies: "ring" or "line" for the communicators that have a topology.
    is_manual: the ranks are devices of a manual region.
    """

    n_ranks: int
    groups: dict[str, list[list[int]]]
    topologies: dict[str, str] = dataclasses.field(default_factory=dict)
    is_manual: bool = False

    @classmethod
    def of_processes(cls, n):
        """The world, two orders of it, its parts, and its neighbourhoods."""
        ranks = list(range(n))
        groups = {"world": [ranks], "copy": [ranks], "back": [ranks[::-1]]}
        groups |= {"half": [h for h in (ranks[::2], ranks[1::2]) if h]}
        groups |= {"ring": [ranks], "line": [ranks]}
        return cls(n, groups, {"ring": "ring", "line": "line"})

    @classmethod
    def of_devices(cls, rows, columns):
        """All devices of a mesh with axes a and b, its rows and its columns."""
        table = np.arange(rows * columns).reshape(rows, columns)
        groups = {"ab": [table.ravel().tolist()], "a": table.T.tolist(), "b": table.tolist()}
        groups["ba"] = [table.T.ravel().tolist()]
        return cls(rows * columns, groups, {}, True)


def communicators(world):
    """The communicators of `Space.of_processes` by name; all ranks make all before any use."""
    made = {
        "world": world,
        "copy": world.Dup(),
        "back": world.Split(0, -world.rank),
        "half": world.Split(world.rank % 2, world.rank),
        "ring": world.Create_cart([world.size], [True]),
        "line": world.Create_cart([world.size], [False]),
    }
    for comm in made.values():
        plait.Comm(comm)
    return made


@dataclasses.dataclass(frozen=True)
class Plant:
    """A fault: on one rank, the statement with this serial number is replaced.

    operation: replaces a collective operation. fault: its name.
    """

    serial: int
    operation: calls.Operation | None
    fault: str


@dataclasses.dataclass(frozen=True)
class Here:
    """The rank that a program runs on. rank None: a device of a manual region.

    flag: an integer, equal on all ranks, that the program gets when it runs.
    plant: a statement that this rank alone replaces.
    """

    space: Space
    comms: dict[str, Any]
    rank: int | None
    flag: Any
    plant: Plant | None = None

    def place(self, name):
        """The communicator, this rank's number in its group, and the size of the group."""
        groups = self.space.groups[name]
        if self.rank is None:
            return self.comms[name], 0, len(groups[0])
        [group] = [g for g in groups if self.rank in g]
        return self.comms[name], group.index(self.rank), len(group)

    def fault(self, serial):
        """The name of the fault that the statement has on this rank, None without a fault."""
        return self.plant.fault if self.plant and self.plant.serial == serial else None

    def number(self):
        """This rank's number, usable in arithmetic."""
        if self.rank is None:
            return jax.lax.axis_index(("a", "b"))
        return self.rank
