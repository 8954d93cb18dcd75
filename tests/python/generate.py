"""Random programs of communication, the same on all ranks, and what they mean in NumPy.

A program changes a *state*: a few *banks* of three arrays of one dtype and shape, and a token.
Each statement reads and overwrites arrays of it, so a loop carries all of it, a branch returns
all of it, and vmap runs over two of them. What operations return, of whatever shape, is given
out beside the state. All numbers are small and whole, so that every result is exact.
"""

import dataclasses
import random
from typing import Any

import cases
import generate_calls as calls
import jax
import jax.numpy as jnp
import numpy as np
import plait

SLOTS = 3
SHAPES = [(), (0,), (3,), (2, 3), (1, 2, 2)]
QUICK = {"xla_backend_optimization_level": 0}  # programs run once


@dataclasses.dataclass(frozen=True)
class Space:
    """Where programs run.

    groups: of each communicator, the ranks of the world in each of its groups, in their order.
    topologies: "ring" or "line" of the communicators that have one.
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
    """What the names of `Space.of_processes` mean; all ranks make them before any uses them."""
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
class Kind:
    """Dtype and shape of the arrays of a bank."""

    dtype: str
    shape: tuple[int, ...]


@dataclasses.dataclass(frozen=True)
class Plant:
    """A fault: the statement with this serial number is, on one rank, something else.

    operation: instead of a collective operation. fault: its name.
    """

    serial: int
    operation: calls.Operation | None
    fault: str


@dataclasses.dataclass(frozen=True)
class Here:
    """The rank that a program runs on. rank None: a device of a manual region.

    flag: an integer, equal on all ranks, that the program is given when it runs.
    plant: a statement that this rank, other than the rest, replaces.
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
        """What is wrong with the statement on this rank: a name, None if nothing is."""
        return self.plant.fault if self.plant and self.plant.serial == serial else None

    def number(self):
        """This rank's number, for arithmetic."""
        if self.rank is None:
            return jax.lax.axis_index(("a", "b"))
        return self.rank


# ---- the state -----------------------------------------------------------------------------------


def replaced(state, bank, slot, value):
    """The state with another array in one place."""
    banks = list(state["banks"])
    banks[bank] = (*banks[bank][:slot], value, *banks[bank][slot + 1 :])
    return state | {"banks": tuple(banks)}


def operand(values, slot, rows, xp):
    """One array, or rows of different arrays of a bank."""
    turned = [values[(slot + i) % SLOTS] for i in range(SLOTS)]
    return turned[0] if rows == calls.WHOLE else calls.stacked(turned, rows, xp)


# ---- statements ----------------------------------------------------------------------------------
# run: from the state of this rank to the next one, and what is given out.
# want: the same from the states of all ranks, to one list for each rank.


@dataclasses.dataclass(frozen=True)
class Call:
    """An operation on arrays of some banks; what comes replaces one of each."""

    serial: int
    operation: calls.Operation
    comm: str
    banks: tuple[int, ...]
    slots: tuple[int, int]
    has_token: bool
    is_linear: bool

    def __str__(self):
        mode = "token" if self.has_token else "effect"
        return f"#{self.serial} {self.operation.text} on {self.comm}, {self.banks}, {mode}"

    def _kept(self, old, y, xp, depend):
        """A row of the result, if it has any, as the next value."""
        if self.operation.value is None:
            return old
        y = self.operation.value(y)
        if y.ndim > old.ndim:
            if y.shape[0] == 0:
                return depend(old, y)
            y = y[self.serial % y.shape[0]]
        return y if self.is_linear else calls.modulo(y, xp)

    def run(self, state, here):
        comm, rank, n = here.place(self.comm)
        fault = here.fault(self.serial)
        if fault == "dropped":
            return state, []
        operation = here.plant.operation if fault else self.operation
        rows, (source, target) = operation.rows(rank, n), self.slots
        x = [operand(state["banks"][b], source, rows, jnp) for b in self.banks]
        token = {"token": state["token"]} if self.has_token else {}
        y = operation.call(x[0] if len(x) == 1 else x, comm, rank, n, **token)
        if self.has_token:
            y, token = y
            state = state | {"token": token}
        leaves = [y] if len(x) == 1 else y
        for b, leaf in zip(self.banks, leaves, strict=True):
            old = state["banks"][b][target]
            new = _tied(old, leaf) if fault else self._kept(old, leaf, jnp, _tied)
            state = replaced(state, b, target, new)
        return state, jax.tree.leaves(y)

    def want(self, states, space, flag):
        states, given = list(states), [[] for _ in states]
        source, target = self.slots
        for group in space.groups[self.comm]:
            n = len(group)
            for b in self.banks:
                xs = [
                    operand(states[r]["banks"][b], source, self.operation.rows(i, n), np)
                    for i, r in enumerate(group)
                ]
                for r, y in zip(group, self.operation.want(xs), strict=True):
                    old = states[r]["banks"][b][target]
                    kept = self._kept(old, y, np, lambda value, _: value)
                    states[r] = replaced(states[r], b, target, kept)
                    given[r] += jax.tree.leaves(y)
        return states, given


def _tied(value, ignored):
    """Without it the adjoint would run on those ranks only that got any rows."""
    return plait.depend(value, ignored) if jnp.issubdtype(value.dtype, jnp.inexact) else value


@dataclasses.dataclass(frozen=True)
class Messages:
    """Sends and receives, one pair of ranks after the other; an array of a bank each."""

    serial: int
    comm: str
    bank: int
    slots: tuple[int, int]
    pairs: tuple[tuple[int, int], ...]
    any_tag: bool
    any_source: bool
    has_token: bool

    def __str__(self):
        wild = " any tag" * self.any_tag + " any source" * self.any_source
        mode = "token" if self.has_token else "effect"
        return f"#{self.serial} messages {self.pairs} on {self.comm}, {self.bank}{wild}, {mode}"

    def _pairs(self, n):
        return [(source % n, dest % n) for source, dest in self.pairs]

    def run(self, state, here):
        comm, rank, n = here.place(self.comm)
        fault = here.fault(self.serial)
        for i, (source, dest) in enumerate(self._pairs(n)):
            tag = 32 * self.serial + i
            if rank == source and fault != "dropped":
                state = self._send(state, comm, dest, tag, fault)
            if rank == dest:
                state = self._recv(state, comm, source, tag)
        return state, []

    def _send(self, state, comm, dest, tag, fault):
        x = state["banks"][self.bank][self.slots[0]]
        x = calls.other_array(x, fault) if fault else x
        if not self.has_token:
            plait.send(x, dest, tag=tag, comm=comm)
            return state
        return state | {"token": plait.send(x, dest, tag=tag, comm=comm, token=state["token"])}

    def _recv(self, state, comm, source, tag):
        template = state["banks"][self.bank][self.slots[1]]
        source = plait.ANY_SOURCE if self.any_source else source
        tag = plait.ANY_TAG if self.any_tag else tag
        token = {"token": state["token"]} if self.has_token else {}
        y = plait.recv(template, source, tag=tag, comm=comm, **token)
        if self.has_token:
            y, token = y
            state = state | {"token": token}
        return replaced(state, self.bank, self.slots[1], y)

    def want(self, states, space, flag):
        states = list(states)
        for group in space.groups[self.comm]:
            for source, dest in self._pairs(len(group)):
                x = states[group[source]]["banks"][self.bank][self.slots[0]]
                r = group[dest]
                states[r] = replaced(states[r], self.bank, self.slots[1], x)
        return states, [[] for _ in states]


@dataclasses.dataclass(frozen=True)
class Barrier:
    """All ranks of a group meet."""

    serial: int
    comm: str
    has_token: bool

    def __str__(self):
        return f"#{self.serial} barrier on {self.comm}, {'token' if self.has_token else 'effect'}"

    def run(self, state, here):
        comm, _, _ = here.place(self.comm)
        if here.fault(self.serial):
            return state, []
        if self.has_token:
            return state | {"token": plait.barrier(comm=comm, token=state["token"])}, []
        plait.barrier(comm=comm)
        return state, []

    def want(self, states, space, flag):
        return states, [[] for _ in states]


@dataclasses.dataclass(frozen=True)
class Local:
    """Arithmetic without communication: "add", "turn" (along an axis) or "scale" by rank."""

    name: str
    bank: int
    slots: tuple[int, int]
    is_linear: bool

    def __str__(self):
        return f"{self.name} {self.bank}: {self.slots}"

    def _of(self, values, ndim, number, xp):
        x, y = values[self.slots[0]], values[self.slots[1]]
        if self.name == "add":
            x = calls.added(x, y, xp)
        elif self.name == "turn" and ndim > 0:
            x = xp.roll(x, 1, axis=ndim - 1)
        elif self.name == "scale" and cases.kind_of(str(x.dtype)) not in ("bool", "float8"):
            x = x * xp.asarray(number + 1).astype(x.dtype)
        return x if self.is_linear else calls.modulo(x, xp)

    def run(self, state, here):
        values = state["banks"][self.bank]
        value = self._of(values, values[0].ndim, here.number(), jnp)
        return replaced(state, self.bank, self.slots[1], value), []

    def want(self, states, space, flag):
        new = []
        for r, state in enumerate(states):
            value = self._of(state["banks"][self.bank], state["ndims"][self.bank], r, np)
            new.append(replaced(state, self.bank, self.slots[1], value))
        return new, [[] for _ in states]


# ---- blocks and control flow ---------------------------------------------------------------------


def _indented(name, *blocks):
    lines = [line for block in blocks for line in (*str(block).split("\n"), "--")]
    return "\n".join([name + ":", *("    " + line for line in lines[:-1])])


@dataclasses.dataclass(frozen=True)
class Block:
    """Statements, one after the other."""

    statements: tuple[Any, ...]

    def __str__(self):
        return "\n".join(map(str, self.statements))

    def run(self, state, here):
        given = []
        for statement in self.statements:
            state, more = statement.run(state, here)
            given += more
        return state, given

    def want(self, states, space, flag):
        given = [[] for _ in states]
        for statement in self.statements:
            states, more = statement.want(states, space, flag)
            for mine, new in zip(given, more, strict=True):
                mine += new
        return states, given


@dataclasses.dataclass(frozen=True)
class Loop:
    """The same block several times: by "scan", which stacks what is given out, or "while"."""

    name: str
    trips: int
    block: Block

    def __str__(self):
        return _indented(f"{self.name} {self.trips}", self.block)

    def run(self, state, here):
        if self.name == "scan":
            return jax.lax.scan(
                lambda s, _: self.block.run(s, here), state, None, length=self.trips
            )

        def body(counted):
            return counted[0] + 1, self.block.run(counted[1], here)[0]

        return jax.lax.while_loop(lambda c: c[0] < self.trips, body, (0, state))[1], []

    def want(self, states, space, flag):
        rounds = []
        for _ in range(self.trips):
            states, given = self.block.want(states, space, flag)
            rounds.append(given)
        if self.name == "while":
            return states, [[] for _ in states]
        return states, [
            [np.stack(same) for same in zip(*(given[r] for given in rounds), strict=True)]
            for r in range(len(states))
        ]


@dataclasses.dataclass(frozen=True)
class Branch:
    """One of two blocks, by the flag that all ranks have in common."""

    limit: int
    blocks: tuple[Block, Block]

    def __str__(self):
        return _indented(f"if flag < {self.limit}", *self.blocks)

    def run(self, state, here):
        first, second = (lambda s, b=b: b.run(s, here)[0] for b in self.blocks)
        return jax.lax.cond(here.flag < self.limit, first, second, state), []

    def want(self, states, space, flag):
        states, _ = self.blocks[flag >= self.limit].want(states, space, flag)
        return states, [[] for _ in states]


@dataclasses.dataclass(frozen=True)
class Nested:
    """A block in a function of its own, under "jit", "plait.jit" or "remat"."""

    name: str
    block: Block

    def __str__(self):
        return _indented(self.name, self.block)

    def run(self, state, here):
        wrap = {"jit": jax.jit, "plait.jit": plait.jit, "remat": jax.checkpoint}[self.name]
        return wrap(lambda s: self.block.run(s, here))(state)

    def want(self, states, space, flag):
        return self.block.want(states, space, flag)


@dataclasses.dataclass(frozen=True)
class Batch:
    """A block under vmap over the state and one with the slots turned; one of the two goes on."""

    axes: tuple[int, ...]
    chosen: int
    block: Block

    def __str__(self):
        return _indented(f"vmap {self.axes}, then {self.chosen}", self.block)

    def _turned(self, banks):
        return [(*values[1:], values[0]) for values in banks]

    def run(self, state, here):
        pairs = zip(self.axes, state["banks"], self._turned(state["banks"]), strict=True)
        batched = {
            "banks": tuple(
                tuple(jnp.stack(two, axis) for two in zip(*both, strict=True))
                for axis, *both in pairs
            ),
            "token": state["token"],
        }
        axes = {"banks": tuple((a,) * SLOTS for a in self.axes), "token": None}
        out_axes = ({"banks": 0, "token": None}, 0)
        f = jax.vmap(lambda s: self.block.run(s, here), in_axes=(axes,), out_axes=out_axes)
        after, given = f(batched)
        banks = jax.tree.map(lambda x: x[self.chosen], after["banks"])
        return {"banks": banks, "token": after["token"]}, given

    def want(self, states, space, flag):
        turned = [s | {"banks": tuple(self._turned(s["banks"]))} for s in states]
        both = [self.block.want(some, space, flag) for some in (states, turned)]
        given = [
            [np.stack(two) for two in zip(both[0][1][r], both[1][1][r], strict=True)]
            for r in range(len(states))
        ]
        return both[self.chosen][0], given


# ---- programs ------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Program:
    """A block of statements with its banks. how: what it runs under, see `test_generated`."""

    seed: int
    kinds: tuple[Kind, ...]
    block: Block
    how: str
    flag: int
    is_linear: bool

    def __str__(self):
        kinds = ", ".join(f"{k.dtype}{list(k.shape)}" for k in self.kinds)
        return f"seed {self.seed}: {self.how}, flag {self.flag}, banks {kinds}\n{self.block}"

    def inputs(self, n, seed=0):
        """Small whole numbers for the banks of each rank."""
        rng = np.random.default_rng([self.seed, seed])
        return [
            tuple(tuple(_small(rng, kind) for _ in range(SLOTS)) for kind in self.kinds)
            for _ in range(n)
        ]

    def run(self, banks, here):
        """What is given out, and the last state; on this rank."""
        state, given = self.block.run({"banks": banks, "token": plait.create_token()}, here)
        return given, state["banks"], state["token"]

    def want(self, banks, space):
        """The same from the banks of all ranks; they may have further axes behind."""
        ndims = tuple(len(kind.shape) for kind in self.kinds)
        states = [{"banks": own, "ndims": ndims} for own in banks]
        states, given = self.block.want(states, space, self.flag)
        return [(g, s["banks"], np.float32(0)) for g, s in zip(given, states, strict=True)]


def _small(rng, kind):
    if kind.dtype == "bool":
        return rng.integers(0, 2, kind.shape).astype(bool)
    x = rng.integers(0, 5, kind.shape).astype("int64")
    if "complex" in kind.dtype:
        x = x + 1j * rng.integers(0, 5, kind.shape)
    return np.asarray(x).astype(np.dtype(kind.dtype))


class Generator:
    """Makes the program of a seed."""

    def __init__(self, seed, space, is_linear=False, is_plain=False):
        """is_plain: collectives with the effect on the world, one after the other."""
        self.rng = random.Random(f"{seed} {is_linear} {is_plain}")
        self.seed, self.space, self.serial = seed, space, 0
        self.is_linear, self.is_plain = is_linear, is_plain
        self.has_messages, self.token_share = False, 0.4
        self.made, self.comms, self.sent = {}, {}, set()

    def program(self, ways):
        """The program, run in one of these ways."""
        rng = self.rng
        dtypes = cases.INEXACT if self.is_linear else cases.DTYPES
        how, flag = rng.choice(ways), rng.randrange(3)
        if how in ("jax.jit", "eager"):  # only a region orders calls by effect and by token
            self.token_share = rng.randrange(2)
        kinds = [Kind(rng.choice(dtypes), rng.choice(SHAPES)) for _ in range(rng.choice((1, 2)))]
        self.kinds = tuple(kinds)
        block = self.block(2 if not self.is_plain else 0, 2 if self.is_linear else 3)
        if self.has_messages and how == "vmap vjp":
            how = "vjp"  # who has sent waits in the adjoint with a template that vmap does not see
        return Program(self.seed, self.kinds, block, how, flag, self.is_linear)

    def plant(self):
        """Something else for one statement of the program, which is a plain one."""
        while True:
            serial, fault = self.rng.choice(sorted(self.made)), self.rng.choice(calls.FAULTS)
            operation = calls.faulty(fault, *self.made[serial], self.rng)
            is_empty = any(0 in kind.shape for kind in self.kinds)
            is_seen = calls.is_seen(fault, *self.made[serial][:2])
            if operation is not None and is_seen and not (is_empty and fault in ("counts", "size")):
                return Plant(serial, operation, fault)

    def alteration(self):
        """Something else, or nothing, for one statement of any program; None if it has none.

        Not where a group is one rank, which may do what it likes.
        """
        serials = [serial for serial, comm in self.comms.items() if comm != "half"]
        is_empty = any(0 in kind.shape for kind in self.kinds)
        for _ in range(100 * bool(serials)):
            serial = self.rng.choice(serials)
            fault = self.rng.choice((*calls.FAULTS, "dropped"))
            if is_empty and fault in ("counts", "size"):
                continue
            if serial in self.made:
                name, numbers, *more = self.made[serial]
                if not calls.is_seen(fault, name, numbers):
                    continue
                operation = None
                if fault != "dropped":
                    operation = calls.faulty(fault, name, numbers, *more, self.rng)
                if operation or fault == "dropped":
                    return Plant(serial, operation, fault)
            elif fault == "dropped" or (serial in self.sent and fault in ("size", "dtype")):
                return Plant(serial, None, fault)
        return None

    def block(self, depth, length):
        """Up to so many statements; control flow in it is so deep at most."""
        n = self.rng.randint(1 + (depth == 2), length + 1)
        return Block(tuple(self.statement(depth) for _ in range(n)))

    def statement(self, depth):
        rng = self.rng
        roll = rng.random()
        if self.is_plain:
            return self.call()
        if depth > 0 and roll < 0.35:
            return self.control(depth)
        if roll < 0.5:
            name = rng.choice(("add", "turn", "scale"))
            bank = rng.randrange(len(self.kinds))
            return Local(name, bank, self.slots(), self.is_linear)
        if roll < 0.55:
            serial, comm = self.next(), rng.choice(list(self.space.groups))
            self.comms[serial] = comm
            return Barrier(serial, comm, self.has_token())
        if roll < 0.65 and not self.space.is_manual:
            return self.messages()
        return self.call()

    def next(self):
        self.serial += 1
        return self.serial

    def has_token(self):
        return not self.is_plain and self.rng.random() < self.token_share

    def slots(self):
        return tuple(self.rng.sample(range(SLOTS), 2))

    def call(self):
        rng, space = self.rng, self.space
        comm = "world" if self.is_plain else rng.choice(list(space.groups))
        topology = space.topologies.get(comm)
        banks = tuple(range(len(self.kinds)))
        banks = banks if rng.random() < 0.3 else (rng.choice(banks),)
        dtypes = [self.kinds[b].dtype for b in banks]
        found = calls.reductions_of(dtypes)
        names = calls.names_of(dtypes, self.is_linear, space.is_manual, topology)
        if self.is_plain:
            names = [*calls.MOVEMENTS, *(calls.REDUCTIONS if found else ())]
        name = rng.choice(names)
        reduction = "SUM" if self.is_linear else rng.choice(found) if found else None
        serial = self.next()
        numbers = calls.Numbers.draw(rng, space.is_manual, serial)
        operation = calls.make(name, numbers, reduction, topology)
        self.made[serial] = (name, numbers, reduction, dtypes)
        self.comms[serial] = comm
        token = self.has_token()
        return Call(serial, operation, comm, banks, self.slots(), token, self.is_linear)

    def messages(self):
        rng, self.has_messages = self.rng, True
        pairs = tuple((rng.randrange(8), rng.randrange(8)) for _ in range(rng.randint(1, 3)))
        any_tag, any_source = rng.choice(((False, False), (True, False), (False, True)))
        token = self.is_linear or self.has_token()  # a send without has no derivative
        comm = rng.choice(list(self.space.groups))
        bank, slots = rng.randrange(len(self.kinds)), self.slots()
        serial = self.next()
        self.comms[serial] = comm
        self.sent.add(serial)
        return Messages(serial, comm, bank, slots, pairs, any_tag, any_source, token)

    def control(self, depth):
        rng = self.rng
        names = [
            "scan",
            "cond",
            "jit",
            "plait.jit",
            "remat",
            "vmap",
            *["while"] * (not self.is_linear),
        ]
        name, length = rng.choice(names), 1 if self.is_linear else 2
        if name in ("scan", "while"):
            return Loop(name, rng.randint(0, 3) or 2, self.block(depth - 1, length))
        if name == "cond":
            both = tuple(self.block(depth - 1, length) for _ in range(2))
            return Branch(rng.randint(0, 3), both)
        if name == "vmap":
            axes = tuple(rng.randint(0, len(kind.shape)) for kind in self.kinds)
            return Batch(axes, rng.randrange(2), self.block(depth - 1, length))
        return Nested(name, self.block(depth - 1, length))
