"""Who is whose neighbour: the topology of an mpi4py communicator as one list of edges."""

import dataclasses
import sys
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import numpy as np

NOBODY = -1  # beyond the boundary of a grid: the block is neither sent nor filled


@dataclasses.dataclass(frozen=True)
class Topology:
    """Neighbours of all ranks, equal on all ranks.

    n_sources, n_dests: number of blocks that each rank receives and sends.
    edges: source rank, source block, dest rank, dest block of every message, one after the
        other.
    dims, periods: of a Cartesian grid, else empty; coords: of each rank in it.
    """

    n_sources: tuple[int, ...]
    n_dests: tuple[int, ...]
    edges: tuple[int, ...]
    dims: tuple[int, ...] = ()
    periods: tuple[bool, ...] = ()
    coords: tuple[tuple[int, ...], ...] = ()


def read(comm: Any) -> Topology | None:
    """The topology of an mpi4py communicator, None without one. Collective over it."""
    mpi = sys.modules["mpi4py.MPI"]
    kind = comm.Get_topology()
    if kind == mpi.CART:
        return _of_grid(mpi.Cartcomm(comm))
    if kind == mpi.GRAPH:
        index, edges = mpi.Graphcomm(comm).Get_topo()
        starts = [0, *index]
        lists = [tuple(edges[starts[r] : starts[r + 1]]) for r in range(comm.size)]
        return of_lists(lists, lists)
    if kind == mpi.DIST_GRAPH:
        own_sources, own_dests, _ = mpi.Distgraphcomm(comm).Get_dist_neighbors()
        every = comm.allgather((tuple(own_sources), tuple(own_dests)))
        return of_lists([s for s, _ in every], [d for _, d in every])
    return None


def of_lists(sources: Sequence[Sequence[int]], dests: Sequence[Sequence[int]]) -> Topology:
    """From every rank's neighbours; the k-th edge from i to j is the k-th in both lists."""
    ends = defaultdict(list)
    for rank, neighbours in enumerate(sources):
        for block, source in enumerate(neighbours):
            ends[source, rank].append(block)
    edges = []
    for rank, neighbours in enumerate(dests):
        for block, dest in enumerate(neighbours):
            if not ends[rank, dest]:
                raise ValueError(
                    f"plait: in the communicator's graph rank {rank} sends to {dest} more often "
                    f"than {dest} receives from {rank}"
                )
            edges += [rank, block, dest, ends[rank, dest].pop(0)]
    missing = [pair for pair, blocks in ends.items() if blocks]
    if missing:
        raise ValueError(
            f"plait: in the communicator's graph rank {missing[0][1]} receives from "
            f"{missing[0][0]} more often than {missing[0][0]} sends to {missing[0][1]}"
        )
    return Topology(tuple(map(len, sources)), tuple(map(len, dests)), tuple(edges))


def _of_grid(comm: Any) -> Topology:
    dims, periods, _ = comm.Get_topo()
    coords = [tuple(comm.Get_coords(r)) for r in range(comm.size)]
    return of_grid(tuple(dims), tuple(map(bool, periods)), coords)


def of_grid(
    dims: tuple[int, ...], periods: tuple[bool, ...], coords: Sequence[tuple[int, ...]]
) -> Topology:
    """Two blocks for each dimension: to the neighbour below, and to the one above.

    What is sent down arrives from above. This tells the two messages apart if both neighbours are
    the same rank, in periodic dimensions of size 1 and 2 (MPI 4.0, 8.6).
    """
    edges = []
    for axis in range(len(dims)):
        for step, (sent, filled) in ((-1, (0, 1)), (1, (1, 0))):
            to = moved(dims, periods, coords, axis, step)
            for rank, dest in enumerate(to):
                if dest != NOBODY:
                    edges += [rank, 2 * axis + sent, dest, 2 * axis + filled]
    n = (2 * len(dims),) * len(coords)
    return Topology(n, n, tuple(edges), dims, periods, tuple(coords))


def moved(
    dims: tuple[int, ...],
    periods: tuple[bool, ...],
    coords: Sequence[tuple[int, ...]],
    axis: int,
    step: int,
) -> list[int]:
    """For each rank of a grid the rank ``step`` places up along an axis, or NOBODY."""
    rank_at = {place: rank for rank, place in enumerate(coords)}
    ranks = []
    for place in coords:
        there = np.array(place)
        there[axis] += step
        if periods[axis]:
            there[axis] %= dims[axis]
        ranks.append(rank_at.get(tuple(int(c) for c in there), NOBODY))
    return ranks
