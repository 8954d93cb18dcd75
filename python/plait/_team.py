"""The processes that share an array or a mesh, and their exchanges outside programs."""

import functools
from collections.abc import Iterable
from typing import Any

import jax
import numpy as np
from plait import _comm, _errors, _move, _order, _world


@functools.cache
def _of_some(processes: tuple[int, ...]) -> Any:
    mpi = _world.mpi()
    return _comm.Comm(mpi.COMM_WORLD.Create_group(mpi.COMM_WORLD.group.Incl(processes)))


def _over(processes: tuple[int, ...]) -> Any:
    mpi = _world.mpi()
    if mpi is None:
        raise TypeError("plait: devices of several processes need MPI ranks: use plait run")
    return _comm.world() if mpi.COMM_WORLD.size == len(processes) else _of_some(processes)


class Team:
    """The processes whose devices take part; all decide alike.

    name: the function that they call.
    """

    def __init__(self, devices: Iterable, name: str):
        self.name = name
        self.processes = tuple(sorted({d.process_index for d in devices}))
        here = jax.process_index()
        if here not in self.processes:
            known = ", ".join(map(str, self.processes))
            raise ValueError(
                f"{name}: called on process {here}, which has no device of the array or mesh; "
                f"expected on those that have: {known}"
            )

    @property
    def comm(self) -> Any:
        """The processes as ranks; None for a single process."""
        return None if len(self.processes) == 1 else _over(self.processes)

    @property
    def is_first(self) -> bool:
        """Whether this process is the one that reads, writes and prints for all."""
        comm = self.comm
        return comm is None or comm.rank == 0

    def gather(self, data: bytes) -> list[bytes]:
        """What every process contributes."""
        comm = self.comm
        if comm is None:
            return [data]
        size = np.array([len(data)], np.int32)
        sizes = np.asarray(_move.allgather(size, comm=comm)).ravel()
        padded = np.zeros(max(1, int(sizes.max())), np.uint8)
        padded[: len(data)] = np.frombuffer(data, np.uint8)
        rows = np.asarray(_move.allgather(padded, comm=comm))
        return [rows[i].tobytes()[:n] for i, n in enumerate(sizes)]

    def largest(self, times: np.ndarray) -> np.ndarray:
        """The elementwise maximum over the processes."""
        return np.max([np.frombuffer(part) for part in self.gather(times.tobytes())], axis=0)

    def meet(self) -> None:
        """Waits until all are here."""
        comm = self.comm
        if comm is not None:
            _order.barrier(comm=comm)

    def tell(self, text: str) -> list[str]:
        """What every process says; MismatchError on each if one of them is in another function."""
        given = f"{self.name}\0{text}".encode(errors="surrogateescape")  # paths may be any bytes
        said = [text.decode(errors="surrogateescape") for text in self.gather(given)]
        names, _, texts = zip(*(text.partition("\0") for text in said), strict=True)
        if len(set(names)) > 1:
            calls = ", ".join(
                f"{name} on rank {rank}" for rank, name in zip(self.processes, names, strict=True)
            )
            raise _errors.MismatchError(
                f"{self.name}: the processes call different functions: {calls}"
            )
        return list(texts)

    def agree(self, failure: str) -> None:
        """Raises OSError on every process if one of them reports a failure."""
        said = self.tell(failure)
        bad = [rank for rank, text in enumerate(said) if text]
        if bad:
            raise OSError(f"rank {self.processes[bad[0]]}: {said[bad[0]]}")
