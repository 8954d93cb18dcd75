"""The statements of a generated program: communication, arithmetic, and control flow around them.

Each statement has `run`, which maps the state of this rank to the next state and the values
returned, and `want`, which does so for the states of all ranks and returns one list of values for
each rank. The `banks` of a state are tuples of `SLOTS` arrays each.
"""

import dataclasses
from typing import Any

import cases
import generate_calls as calls
import jax
import jax.numpy as jnp
import numpy as np
import plait

SLOTS = 3


# ---- the state -----------------------------------------------------------------------------------


def replaced(state, bank, slot, value):
    """The state with one array replaced."""
    banks = list(state["banks"])
    banks[bank] = (*banks[bank][:slot], value, *banks[bank][slot + 1 :])
    return state | {"banks": tuple(banks)}


def operand(values, slot, rows, xp):
    """One array, or rows of different arrays of a bank."""
    turned = [values[(slot + i) % SLOTS] for i in range(SLOTS)]
    return turned[0] if rows == calls.WHOLE else calls.stacked(turned, rows, xp)


# ---- statements ----------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Call:
    """An operation on arrays of some banks; its result replaces one array of each bank."""

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
        """The next value: a row of the result, if the result has rows."""
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
    """Tie to unused rows: else the adjoint would run only on the ranks that got rows."""
    return plait.depend(value, ignored) if jnp.issubdtype(value.dtype, jnp.inexact) else value


@dataclasses.dataclass(frozen=True)
class Messages:
    """Sends and receives, one pair of ranks after the other, with arrays of one bank."""

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
    """A barrier of all ranks of a group."""

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
    """A block, repeated by "scan", which stacks the values returned, or by "while"."""

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
    """One of two blocks, chosen by the flag, which is equal on all ranks."""

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
    """A block under vmap over the state and its copy with turned slots; one of both goes on."""

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
