"""Small random programs that mix the ways in which plait orders operations.

`Dispatched` is a sequence of calls, each of them eager, under plait.jit or under jax.jit, by effect
or by token. Its functions are compiled once, so that thousands of programs are cheap. All messages
have one size, and every call has numbers of its own: a message that reaches another call shows.
`Compiled` is one function; its operations have different sizes, which show in what order they ran.
"""

import functools
import random

import generate
import jax
import jax.numpy as jnp
import numpy as np
import plait
from plait import _core

SHAPE = (2,)


# ---- operations on one array, all with results of its shape --------------------------------------


def _ring(n, rank):
    return (rank - 1) % n, (rank + 1) % n


def _allreduce(x, comm, rank, n, token):
    return _threaded(plait.allreduce(x, plait.SUM, comm=comm, **token), token)


def _bcast(x, comm, rank, n, token):
    return _threaded(plait.bcast(x, n - 1, comm=comm, **token), token)


def _permute(x, comm, rank, n, token):
    pairs = [(r, (r + 1) % n) for r in range(n)]
    return _threaded(plait.permute(x, pairs, comm=comm, **token), token)


def _sendrecv(x, comm, rank, n, token):
    source, dest = _ring(n, rank)
    return _threaded(plait.sendrecv(x, x, source, dest, comm=comm, **token), token)


def _send_and_recv(x, comm, rank, n, token):
    source, dest = _ring(n, rank)
    token = {"token": plait.send(x, dest, comm=comm, **token)} if token else {}
    if not token:
        plait.send(x, dest, comm=comm)
    return _threaded(plait.recv(jnp.zeros_like(x), source, comm=comm, **token), token)


def _scan(x, comm, rank, n, token):
    return _threaded(plait.scan(x, plait.SUM, comm=comm, **token), token)


def _threaded(result, token):
    """The result and the next token; the token is None without `token`."""
    return result if token else (result, None)


OPERATIONS = {
    "allreduce": (_allreduce, lambda xs, r: sum(xs)),
    "bcast": (_bcast, lambda xs, r: xs[-1]),
    "permute": (_permute, lambda xs, r: xs[r - 1]),
    "sendrecv": (_sendrecv, lambda xs, r: xs[r - 1]),
    "send, recv": (_send_and_recv, lambda xs, r: xs[r - 1]),
    "scan": (_scan, lambda xs, r: sum(xs[: r + 1])),
}


# ---- programs of calls ---------------------------------------------------------------------------

WAYS = ("eager", "plait.jit", "jax.jit")
WRAP = {"eager": lambda f: f, "plait.jit": plait.jit, "jax.jit": jax.jit}
# Operations of a function under plait.jit, by effect and by token.
MIXTURES = [
    (("allreduce", True), ("send, recv", False), ("allreduce", False)),
    (("permute", False), ("permute", True), ("bcast", False)),
    (("sendrecv", True), ("sendrecv", False), ("sendrecv", True)),
    (("scan", False), ("allreduce", True), ("send, recv", True), ("scan", False)),
]


class Dispatched:
    """Programs of calls on one rank; comms: communicators of mpi4py over all ranks."""

    def __init__(self, comms, rank, n):
        self.comms, self.rank, self.n = comms, rank, n
        self.token, self.mark = plait.create_token(), 0

    @functools.cache  # noqa: B019 - lives as long as the tests
    def function(self, way, comm, steps):
        """Compute the results of these operations and the next token from (array, token)."""
        comm = self.comms[comm]

        def f(x, token):
            results = []
            for i, (name, has_token) in enumerate(steps):
                given = {"token": token} if has_token else {}
                y, out = OPERATIONS[name][0](x + i, comm, self.rank, self.n, given)
                token = out if has_token else token
                results.append(y)
            return results, token

        return WRAP[way](f)

    def run(self, seed, n_calls=8):
        """Run the program of a seed and compare all results at its end."""
        rng = random.Random(seed)
        results, wants, said = [], [], []
        for _ in range(n_calls):
            way, comm = rng.choice(WAYS), rng.choice(sorted(self.comms))
            steps = ((rng.choice(sorted(OPERATIONS)), rng.random() < 0.5),)
            if rng.random() < 0.3:
                way, steps = "plait.jit", rng.choice(MIXTURES)
            self.mark += 1
            xs = [np.array([self.mark, 100 * r + 1.0]) for r in range(self.n)]
            f = self.function(way, comm, steps)
            got, self.token = f(jnp.asarray(xs[self.rank]), self.token)
            results += got
            for i, (name, _) in enumerate(steps):
                wants.append(OPERATIONS[name][1]([x + i for x in xs], self.rank))
            said.append(f"{way} on {comm}: {steps}")
        for i, (got, want) in enumerate(zip(results, wants, strict=True)):
            text = "\n".join([f"seed {seed}, result {i}: {got}, expected {want}", *said])
            assert np.array_equal(got, want), text


# ---- one function --------------------------------------------------------------------------------


class Compiled:
    """A function of this process alone; each operation has its number as size."""

    def __init__(self, seed):
        self.rng, self.mark = random.Random(seed), 0
        self.way = self.rng.choice(("plait.jit", "jax.jit"))
        self.seed, self.steps = seed, self.block(2)

    def block(self, depth):
        """Some operations, some inside control flow: (name, mark or block)."""
        steps = []
        for _ in range(self.rng.randint(2, 4)):
            names = ("effect", "token", "effect", "token", "jit", "plait.jit", "scan", "remat")
            name = self.rng.choice(names[: 4 if depth == 0 else 8])
            if name in ("effect", "token"):
                self.mark += 1
                steps.append((name, self.mark))
            else:
                steps.append((name, self.block(depth - 1)))
        return tuple(steps)

    def body(self, steps, x, token):
        """The steps, on numbers that take XLA different times to compute."""
        for name, what in steps:
            if name == "effect":
                x = x + 0 * plait.allreduce(self._late(x, what), plait.SUM)[0]
            elif name == "token":
                y, token = plait.allreduce(self._late(x, what), plait.SUM, token=token)
                x = x + 0 * y[0] if what % 2 else x
            elif name == "scan":

                def step(state, _, what=what):
                    return self.body(what, *state), None

                x, token = jax.lax.scan(step, (x, token), None, length=2)[0]
            else:
                wrap = {"jit": jax.jit, "plait.jit": plait.jit, "remat": jax.checkpoint}[name]
                x, token = wrap(functools.partial(self.body, what))(x, token)
        return x, token

    def _late(self, x, mark):
        y = x if mark % 3 else jnp.sin(jnp.sin(x @ x))
        return jnp.broadcast_to(y[0, :1], (mark,))

    def marks(self, steps, name=None):
        """The numbers in program order, of one kind of operation or both."""
        found = []
        for kind, what in steps:
            if kind in ("effect", "token"):
                found += [what] if name in (None, kind) else []
            else:
                found += self.marks(what, name) * (2 if kind == "scan" else 1)
        return found

    def run(self):
        """Run the function twice and compare the order with the log of the C core."""
        wrap = {"plait.jit": plait.jit, "jax.jit": jax.jit}[self.way]
        options = {"compiler_options": generate.QUICK}
        f = wrap(lambda x, token: self.body(self.steps, x, token), **options)
        x, token = jnp.ones((20, 20)), plait.create_token()
        plait.block(f(x, token))
        _core.trace_start(True)
        plait.block(f(x, token))
        lines = _core.trace()
        _core.trace_start(False)
        ran = [int(line.split("[")[1].split("]")[0]) for line in lines]
        # Only a region orders the two kinds relative to each other.
        for name in (None,) if self.way == "plait.jit" else ("effect", "token"):
            kind = set(self.marks(self.steps, name))
            want = self.marks(self.steps, name)
            got = [mark for mark in ran if mark in kind]
            assert got == want, f"seed {self.seed}, {self.way}, {name}: {got}\n{self.steps}"
