"""Random programs of communication, the same on all ranks, and what they mean in NumPy.

A program changes a *state*: a few *banks* of three arrays of one dtype and shape, and a token.
Each statement reads and overwrites arrays of the state, so a loop carries all of it, a branch
returns all of it, and vmap runs over two states. Results of operations, of any shape, are returned
beside the state. All numbers are small integers, so that every result is exact.
"""

import dataclasses
import random

import cases
import generate_calls as calls
import generate_space
import generate_statements as statements
import numpy as np
import plait

SHAPES = [(), (0,), (3,), (2, 3), (1, 2, 2)]
QUICK = {"xla_backend_optimization_level": 0}  # programs run once


@dataclasses.dataclass(frozen=True)
class Kind:
    """Dtype and shape of the arrays of a bank."""

    dtype: str
    shape: tuple[int, ...]


@dataclasses.dataclass(frozen=True)
class Program:
    """A block of statements with its banks. how: what it runs under, see `test_generated`."""

    seed: int
    kinds: tuple[Kind, ...]
    block: statements.Block
    how: str
    flag: int
    is_linear: bool

    def __str__(self):
        kinds = ", ".join(f"{k.dtype}{list(k.shape)}" for k in self.kinds)
        return f"seed {self.seed}: {self.how}, flag {self.flag}, banks {kinds}\n{self.block}"

    def inputs(self, n, seed=0):
        """Small integers for the banks of each rank."""
        rng = np.random.default_rng([self.seed, seed])
        return [
            tuple(tuple(_small(rng, kind) for _ in range(statements.SLOTS)) for kind in self.kinds)
            for _ in range(n)
        ]

    def run(self, banks, here):
        """The values returned and the last state, on this rank."""
        state, given = self.block.run({"banks": banks, "token": plait.create_token()}, here)
        return given, state["banks"], state["token"]

    def want(self, banks, space):
        """The same from the banks of all ranks; the arrays may have further axes behind."""
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
        if how in ("jax.jit", "eager"):  # only a region orders calls by effect among calls by token
            self.token_share = rng.randrange(2)
        kinds = [Kind(rng.choice(dtypes), rng.choice(SHAPES)) for _ in range(rng.choice((1, 2)))]
        self.kinds = tuple(kinds)
        block = self.block(2 if not self.is_plain else 0, 2 if self.is_linear else 3)
        if self.has_messages and how == "vmap vjp":
            how = "vjp"  # in the adjoint, senders wait with a template that vmap does not see
        return Program(self.seed, self.kinds, block, how, flag, self.is_linear)

    def plant(self):
        """Another operation for one statement of the program, which is a plain program."""
        while True:
            serial, fault = self.rng.choice(sorted(self.made)), self.rng.choice(calls.FAULTS)
            operation = calls.faulty(fault, *self.made[serial], self.rng)
            is_empty = any(0 in kind.shape for kind in self.kinds)
            is_seen = calls.is_seen(fault, *self.made[serial][:2])
            if operation is not None and is_seen and not (is_empty and fault in ("counts", "size")):
                return generate_space.Plant(serial, operation, fault)

    def alteration(self):
        """Another operation, or none, for one statement of any program; None if nothing fits.

        Never in a group of one rank: a single rank cannot disagree.
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
                    return generate_space.Plant(serial, operation, fault)
            elif fault == "dropped" or (serial in self.sent and fault in ("size", "dtype")):
                return generate_space.Plant(serial, None, fault)
        return None

    def block(self, depth, length):
        """At most `length` statements, with control flow at most `depth` deep."""
        n = self.rng.randint(1 + (depth == 2), length + 1)
        return statements.Block(tuple(self.statement(depth) for _ in range(n)))

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
            return statements.Local(name, bank, self.slots(), self.is_linear)
        if roll < 0.55:
            serial, comm = self.next(), rng.choice(list(self.space.groups))
            self.comms[serial] = comm
            return statements.Barrier(serial, comm, self.has_token())
        if roll < 0.65 and not self.space.is_manual:
            return self.messages()
        return self.call()

    def next(self):
        self.serial += 1
        return self.serial

    def has_token(self):
        return not self.is_plain and self.rng.random() < self.token_share

    def slots(self):
        return tuple(self.rng.sample(range(statements.SLOTS), 2))

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
        return statements.Call(serial, operation, comm, banks, self.slots(), token, self.is_linear)

    def messages(self):
        rng, self.has_messages = self.rng, True
        pairs = tuple((rng.randrange(8), rng.randrange(8)) for _ in range(rng.randint(1, 3)))
        any_tag, any_source = rng.choice(((False, False), (True, False), (False, True)))
        token = self.is_linear or self.has_token()  # a send without a token has no derivative
        comm = rng.choice(list(self.space.groups))
        bank, slots = rng.randrange(len(self.kinds)), self.slots()
        serial = self.next()
        self.comms[serial] = comm
        self.sent.add(serial)
        return statements.Messages(serial, comm, bank, slots, pairs, any_tag, any_source, token)

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
            return statements.Loop(name, rng.randint(0, 3) or 2, self.block(depth - 1, length))
        if name == "cond":
            both = tuple(self.block(depth - 1, length) for _ in range(2))
            return statements.Branch(rng.randint(0, 3), both)
        if name == "vmap":
            axes = tuple(rng.randint(0, len(kind.shape)) for kind in self.kinds)
            return statements.Batch(axes, rng.randrange(2), self.block(depth - 1, length))
        return statements.Nested(name, self.block(depth - 1, length))
