"""Communicators: what ``comm=`` accepts, and the small numbers that programs know them by."""

import contextlib
import ctypes
import functools
import importlib
import sys
import threading
import weakref
import zlib
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import jax
from plait import _core, _errors, _exit, _held, _platforms, _sites, _topology, _trace, _world
from plait._asked import Imagined


class Special(int):
    """A rank or tag that is no real one; mpi4py's own values differ between MPIs and collide."""

    def __new__(cls, value: int, name: str = "ANY") -> "Special":
        """Equal by value; the name is for messages."""
        made = super().__new__(cls, value)
        made._name = name
        return made

    def __repr__(self) -> str:
        return f"plait.{self._name}"

    def __reduce__(self) -> str:
        """A copy is the object of this name: some values are recognised by identity."""
        return self._name


PROC_NULL = Special(-2, "PROC_NULL")
ANY_SOURCE = Special(-1, "ANY_SOURCE")
ANY_TAG = Special(-1, "ANY_TAG")
TANGENTS = "'"  # added to a mode


class Comm:
    """A communicator of plait: an ordered group of ranks.

    ``plait.Comm(mpi4py_comm)`` duplicates an mpi4py communicator now instead of at its first
    use. ``plait.Comm()`` is the world: COMM_WORLD under a launcher, else this process alone.
    ``rank`` is the rank of this process, ``size`` the number of ranks. Each mpi4py communicator
    has one plait communicator, however often you ask for it; for another one use
    ``plait.Comm(mpi4py_comm.Dup())``.

    A copy of a communicator is the communicator itself, also by `copy.deepcopy`. The world and
    COMM_SELF can be pickled: the reader gets its own, with its own rank. Others cannot.

    Collective: over the communicator, at first use and in `free`.  Shapes: none.
    Raises: TypeError for null and inter-communicators, and by pickle for communicators that other
    processes cannot name.  Adjoint: none.
    Source: MPI 4.0, 7.4.

    Example:
        >>> import plait
        >>> comm = plait.Comm()
        >>> comm.rank, comm.size
        (0, 1)
    """

    size: int
    rank: int
    topology: _topology.Topology | None
    _source: Any
    _label: str
    _ids: dict[str, int]
    _state: dict[str, bool]
    _members: frozenset[int]

    def __init__(self, comm: Any = None):
        other = resolve(comm, "Comm")
        self.__dict__.update(other.__dict__)

    @classmethod
    def _make(cls, source: Any, size: int, rank: int) -> "Comm":
        made = object.__new__(cls)
        made._source, made.size, made.rank = source, size, rank
        made._label, made._ids, made._state = _sites.text(), {}, {"is_freed": False}
        made._members = frozenset() if source is None else _members(source)
        _free_orphans(made._members)
        for mode in ("effect", "token"):
            made.id(mode)
        made.topology = None if source is None else _topology.read(source)  # all are here by now
        _open[made.id()] = made
        return made

    def id(self, mode: str = "effect") -> int:
        """The number of this communicator's duplicate for calls by effect or by token.

        All duplicates are made with the communicator, also those for tangents: later, perhaps only
        some ranks call by token, or differentiate.
        """
        if mode not in self._ids:
            if self._source is None:
                self._ids[mode] = _core.add_self(self._label)
            else:
                bits = _handle(self._source)
                with _expecting(self._members):
                    self._ids[mode] = _core.add_mpi(bits, self.size, self.rank, self._label)
            _mark(self._ids[mode], self.size, mode)
            _of_number[self._ids[mode]] = self
            if not mode.endswith(TANGENTS):
                self.id(mode + TANGENTS)
        return self._ids[mode]

    @property
    def transport(self) -> str:
        """How ranks reach each other: self, local, node, cluster or mpi."""
        return _core.comm_texts(self.id())[0]

    @property
    def direct(self) -> str:
        """How peers' memory is reached, and why."""
        return _core.comm_texts(self.id())[1]

    def free(self) -> None:
        """Waits for queued work and frees plait's duplicates; the MPI communicator stays.

        If the MPI communicator was freed first, plait's duplicates are freed when the next
        communicator of its ranks, or of more, is made.
        """
        if not self._state["is_freed"]:
            self._free_duplicates()
            keyval = _keyvals.get("id")
            if self._source is not None and keyval is not None and self._source:
                self._source.Delete_attr(keyval)
            if _worlds and _worlds[0]._state is self._state:
                _worlds.clear()

    def _free_duplicates(self) -> None:
        self._state["is_freed"] = True
        _open.pop(self.id(), None)
        _exit.flush()
        for comm_id in self._ids.values():
            _core.free(comm_id)
            _marks.pop(comm_id, None)
            for forget in on_free:
                forget(comm_id)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Comm) and other._state is self._state

    def __hash__(self) -> int:
        return id(self._state)

    def __copy__(self) -> "Comm":
        return self  # `free` of a copy would free this communicator's duplicates

    def __deepcopy__(self, _: dict[int, Any]) -> "Comm":
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        """Rebuilds communicators that every process has a name for, with the reader's numbers."""
        if self._state["is_freed"]:
            raise _freed("pickle", self)
        mpi = sys.modules.get("mpi4py.MPI")
        if self._source is None or self._source == mpi.COMM_WORLD:
            return _read, (type(self), "COMM_WORLD")
        if self._source == mpi.COMM_SELF:
            return _read, (type(self), "COMM_SELF")
        raise TypeError(
            f"pickle: communicator #{self._ids['effect']} (made at {self._label}) has no name in "
            "other processes, as only those of MPI.COMM_WORLD and MPI.COMM_SELF have; make it in "
            "each process instead"
        )

    def __repr__(self) -> str:
        return f"plait.Comm(#{self._ids['effect']}, rank {self.rank} of {self.size})"


def _read(kind: type[Comm], name: str) -> Comm:
    """The reader's communicator for the pickled name."""
    mpi = _world.mpi()
    if name == "COMM_SELF":
        mpi = mpi or importlib.import_module("mpi4py.MPI")
        return kind(mpi.COMM_SELF)
    return kind()


_open: dict[int, Comm] = {}  # communicators not freed yet: programs know their numbers
_of_number: weakref.WeakValueDictionary[int, Comm] = weakref.WeakValueDictionary()
on_free: list[Callable[[int], Any]] = []  # of modules that keep state by communicator number


def _members(source: Any) -> frozenset[int]:
    """The ranks of an MPI communicator by their numbers in COMM_WORLD."""
    mpi = sys.modules["mpi4py.MPI"]
    group, world = source.Get_group(), mpi.COMM_WORLD.Get_group()
    ranks = mpi.Group.Translate_ranks(group, list(range(group.size)), world)
    group.Free()
    world.Free()
    return frozenset(ranks)


@contextlib.contextmanager
def _expecting(members: frozenset[int]) -> Iterator[None]:
    """Tells the guard the ranks of a new communicator, so that it sees which of them have left."""
    ranks = (ctypes.c_int32 * len(members))(*members)
    _core.lib.plait_guard_expect(len(members), ranks)
    try:
        yield
    finally:
        _core.lib.plait_guard_expect(0, None)


def _free_orphans(members: frozenset[int]) -> None:
    """Frees the duplicates of MPI communicators that were freed, if all their ranks are here.

    MPI_Comm_free is collective: all these ranks have freed their communicators before, and come
    here together.
    """
    for comm_id, comm in sorted(_open.items()):
        if (
            comm._members <= members
            and _core.lib.plait_registry_is_orphaned(comm_id)
            and _open.pop(comm_id, None)
        ):
            comm._free_duplicates()


_making = threading.Lock()
_locks: dict[Any, Any] = {}


@contextlib.contextmanager
def _alone_with(key: Any) -> Iterator[None]:
    """No other thread makes the key's object meanwhile, and no interrupt leaves it half made.

    With one lock for all keys, ranks whose threads make their objects in different orders would
    wait for each other.
    """
    with _making:
        lock = _locks.setdefault(key, threading.Lock())
    try:
        with lock, _held.interrupts():
            yield
    finally:
        with _making:
            _locks.pop(key, None)


_worlds: list[Comm] = []
_keyvals: dict[str, int] = {}
_seen: dict[int, tuple[weakref.ref, Comm]] = {}


def of_number(comm_id: int) -> Comm:
    """The communicator that programs know by this number."""
    found = _of_number.get(comm_id)
    if found is None:
        raise _errors.CommError(f"plait: communicator #{comm_id} was freed")
    return found


_marks: dict[int, int] = {}


def _mark(number: int, size: int, *who: Any) -> None:
    """Records who the ranks of a new communicator are, in a text that is equal on all of them.

    In another process the same number may be another communicator's.
    """
    text = repr((size, *who)) if size > 1 else "alone"
    _marks[number] = zlib.crc32(text.encode()) >> 1 or 1
    _core.set_mark(number, _marks[number])


def in_programs(number: int) -> int:
    """A communicator's number as compiled programs have it: with its mark in the upper half."""
    return number | _marks.get(number, 0) << 32


def _handle(comm: Any) -> int:
    bits = comm.handle if hasattr(comm, "handle") else sys.modules["mpi4py.MPI"]._handleof(comm)
    return bits & (2**64 - 1)


def _freed(name: str, comm: Comm) -> _errors.CommError:
    return _errors.CommError(
        f"{name}: communicator #{comm._ids['effect']} (made at {comm._label}) was freed"
    )


def _forget(key: int, _: Any, seen: dict = _seen) -> None:
    seen.pop(key, None)


def _of_mpi(comm: Any, name: str, mpi: Any) -> Comm:
    """The Comm of an mpi4py communicator, kept in an attribute: it dies with the handle."""
    if comm == mpi.COMM_NULL:
        known = _seen.get(id(comm))
        if known is not None and known[0]() is comm:
            raise _freed(name, known[1])
        raise TypeError(f"{name}: comm is MPI.COMM_NULL; expected a communicator")
    if isinstance(comm, mpi.Intercomm) or comm.Is_inter():
        raise TypeError(f"{name}: comm is an inter-communicator; expected MPI.Intracomm")
    with _making:
        if "id" not in _keyvals:
            _keyvals["id"] = mpi.Comm.Create_keyval()
    made = comm.Get_attr(_keyvals["id"])
    if made is None or made._state["is_freed"]:
        with _alone_with(_handle(comm)):
            made = comm.Get_attr(_keyvals["id"])
            if made is None or made._state["is_freed"]:
                made = Comm._make(comm, comm.size, comm.rank)
                _trace.introduce(mpi, comm)
                comm.Set_attr(_keyvals["id"], made)
    _seen[id(comm)] = (weakref.ref(comm, functools.partial(_forget, id(comm))), made)
    return made


def world() -> Comm:
    """Plait's duplicate of COMM_WORLD, or this process alone without launcher and mpi4py."""
    known = _worlds[:1]
    if not known:
        with _alone_with("world"):
            mpi = _world.mpi()
            if not _worlds:
                alone = mpi is None
                made = Comm._make(None, 1, 0) if alone else _of_mpi(mpi.COMM_WORLD, "Comm", mpi)
                _worlds.append(made)
            known = _worlds[:1]
    return known[0]


def known_transport() -> str:
    """How this process's ranks reach each other; "mpi" until a communicator of all exists."""
    return _worlds[0].transport if _worlds else "mpi"


def resolve(comm: Any, name: str) -> Comm:
    """The Comm that ``comm=`` of the rank model means."""
    if _exit.is_forked():
        raise _errors.CommError(
            f"{name}: this process was forked from one that uses plait, and has no communicator; "
            "call the operation in the parent"
        )
    if comm is None:
        return world()
    if isinstance(comm, Comm):
        if comm._state["is_freed"]:
            raise _freed(name, comm)
        return comm
    module = sys.modules.get("mpi4py.MPI")
    if module is not None and isinstance(comm, module.Comm):
        return _of_mpi(comm, name, _world.mpi())
    raise TypeError(
        f"{name}: comm is {type(comm).__name__}; expected None, plait.Comm, an mpi4py "
        "Intracomm, or inside shard_map the names of mesh axes"
    )


# ---- communicators over the devices of a mesh ------------------------------------------------

_device_comms: dict[tuple, int] = {}
NOWHERE = -1  # no communicator of the core has this number


def over_devices(groups: tuple[tuple, ...], mode: str = "effect") -> int:
    """Number of the communicators whose rank r is device r of each group; made at first use."""
    if isinstance(groups[0][0], Imagined):
        return NOWHERE
    key = (mode, tuple(tuple((d.platform, d.id) for d in group) for group in groups))
    if key not in _device_comms:
        with _alone_with(key):
            if key not in _device_comms:
                made = _make_over(groups, mode)
                _mark(made, sum(map(len, groups)), key)
                _device_comms[key] = made
    return _device_comms[key]


def _make_over(groups: tuple[tuple, ...], mode: str) -> int:
    devices = [d for group in groups for d in group]
    label = f"a mesh of {len(devices)} devices, {_sites.text()}"
    _check_platform(devices)
    if len(devices) == 1:
        return _core.add_self(label)
    processes = _processes(devices)
    if jax.process_index() not in processes:  # like JAX, lower programs that never run here
        return _core.add_self(label)
    if processes == [jax.process_index()]:
        return _core.add_devices(_rows(groups), jax.process_index(), [0] * len(groups), label)
    mpi = _ranks(len(processes))
    is_one_each, all_processes = len(processes) == len(devices), list(range(mpi.COMM_WORLD.size))
    is_guarded = is_one_each and len(groups) == 1 and processes == all_processes
    if not is_guarded and sorted(processes) == all_processes:
        _meet(mpi)
    if is_one_each:
        return _over_processes(groups, mode, label, mpi)
    return _over_hosts(groups, label, mpi)


def _check_platform(devices: list) -> None:
    found = {d.platform for d in devices}
    known = ("cpu", "gpu") if _core.has_devices() else ("cpu",)
    if found == {"gpu"} and "gpu" not in known:
        raise _errors.Error(f"a mesh of {len(devices)} devices: {_platforms.NOT_CHOSEN}")
    if len(found) > 1 or not found <= set(known):
        names = " or all ".join({"cpu": "CPUs", "gpu": "GPUs"}[p] for p in known)
        got = ", ".join(sorted(found))
        raise TypeError(f"plait: the devices of a mesh must be all {names}, got {got}")


def _processes(devices: Iterable) -> list[int]:
    """The processes of the devices, in the order of the devices."""
    return list(dict.fromkeys(d.process_index for d in devices))


def _ranks(n: int) -> Any:
    """MPI, whose ranks are JAX's processes."""
    mpi = _world.mpi()
    if mpi is None or mpi.COMM_WORLD.size != jax.process_count():
        raise TypeError(
            f"plait: a mesh over {n} processes needs MPI ranks: start the program with `plait run` "
            'and call jax.distributed.initialize(cluster_detection_method="mpi4py")'
        )
    if mpi.COMM_WORLD.rank != jax.process_index():
        raise TypeError(
            f"plait: process {jax.process_index()} of JAX is MPI rank {mpi.COMM_WORLD.rank}; "
            'they must be equal: call jax.distributed.initialize(cluster_detection_method="mpi4py")'
        )
    return mpi


_meetings: list[int] = []


def _meet(mpi: Any) -> None:
    """All processes meet here, where the guard watches, before they wait inside MPI's own calls."""
    if not _meetings:
        size, rank = mpi.COMM_WORLD.size, mpi.COMM_WORLD.rank
        with _expecting(frozenset(range(size))):
            _meetings.append(_core.add_mpi(_handle(mpi.COMM_WORLD), size, rank, "meshes"))
    _core.check(_core.lib.plait_barrier(_core.lib.plait_registry_comm(_meetings[0])))


def _of_processes(members: list[int], mpi: Any) -> Any:
    """MPI's communicator of these processes; that of all exists already, so nobody waits for it."""
    if members == list(range(mpi.COMM_WORLD.size)):
        return mpi.COMM_WORLD
    return mpi.COMM_WORLD.Create_group(mpi.COMM_WORLD.group.Incl(members))


def _over_processes(groups: tuple[tuple, ...], mode: str, label: str, mpi: Any) -> int:
    """One device of each process. The number must be equal in the programs of all groups."""
    if len(groups) > 1:  # afterwards all processes continue from the same number
        over_devices((tuple(d for group in groups for d in group),), mode)
    [own] = [g for g in groups if any(d.process_index == jax.process_index() for d in g)]
    members = [d.process_index for d in own]
    comm = _of_processes(members, mpi)
    with _expecting(frozenset(members)):
        return _core.add_mpi(_handle(comm), comm.size, comm.rank, label, of_mesh=True)


def _over_hosts(groups: tuple[tuple, ...], label: str, mpi: Any) -> int:
    """Several devices on some processes: a group may lie within one process or span several."""
    here = jax.process_index()
    everyone = _of_processes(_processes(d for group in groups for d in group), mpi)
    number = everyone.allreduce(_core.next_number(), op=mpi.MAX)
    if everyone is not mpi.COMM_WORLD:
        everyone.Free()
    own = tuple(g for g in groups if here in _processes(g))
    comms = [_of_processes(p, mpi) if len(p) > 1 else None for p in map(_processes, own)]
    handles = [0 if c is None else _handle(c) for c in comms]
    return _core.add_devices(_rows(own), here, handles, label, number)


@functools.cache
def _tracks(platform: str) -> dict[int, int]:
    """Every device's number within its process."""
    found: dict[int, list[int]] = {}
    for device in jax.devices(platform):
        found.setdefault(device.process_index, []).append(device.id)
    return {i: sorted(ids).index(i) for ids in found.values() for i in ids}


def _ordinal(device: Any) -> int:
    """The device number that XLA passes a handler: on CPUs JAX's number, else the process's own.

    For devices of other processes JAX does not know the latter, and nobody needs it: -1.
    """
    if device.platform == "cpu":
        return device.id
    return device.local_hardware_id if device.process_index == jax.process_index() else -1


def _rows(groups: tuple[tuple, ...]) -> list[_core.Device]:
    return [
        _core.Device(number, d.process_index, _ordinal(d), _tracks(d.platform)[d.id])
        for number, group in enumerate(groups)
        for d in group
    ]
