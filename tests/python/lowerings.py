"""Run by test_device_lowering.py: every operation lowered for CPUs and for CUDA, as JSON.

Nothing here needs a device: programs are lowered and never run.
"""

import json
import re
import sys

import jax
import jax.numpy as jnp
import meshes
import plait
from jax.sharding import PartitionSpec as P

jax.config.update("jax_platforms", "cpu")
jax.config.update("jax_num_cpu_devices", 2)
ONE, MESH = meshes.make((1,)), meshes.make((2,))
X = jnp.ones((2, 2, 4), jnp.float32)
CUBE = jnp.ones((4, 4, 4), jnp.complex64)
WIDTHS = (1, 0, 0)
SPLIT = P("a")


def by_token(f):
    """The same function by an explicit token, which another operation passes on."""

    def call(x):
        y, token = f(x, token=plait.create_token())
        return y, plait.allreduce(x, plait.SUM, token=token)[0]

    return call


def in_region(f):
    """The function on each of two devices."""
    return jax.shard_map(f, mesh=MESH, in_specs=P("a"), out_specs=P("a"), check_vma=False)


def transfers(x, token=None):
    """A message of this rank to itself, by two calls that derivatives go through."""
    first = plait.create_token() if token is None else token
    y, last = plait.recv(x, 0, token=plait.send(x, 0, token=first))
    return plait.depend(y, last) if token is None else (y, last)


def with_barrier(x, **token):
    """A barrier before an operation, because the barrier has no result of its own."""
    after = plait.barrier(**token)
    return plait.allreduce(x, plait.SUM, **({"token": after} if token else {}))


def in_halves(f, *args):
    """The operation, started and then waited for."""
    return lambda x: plait.wait(plait.start(f, x, *args), after=x)


def transfers_in_halves(x):
    """A message to itself, a barrier, and a sendrecv, each started and waited for."""
    here = plait.start(plait.recv, x, 0)
    there = plait.start(plait.send, x, 0)
    plait.wait(plait.start(plait.barrier))
    plait.wait(there)
    both = plait.start(plait.sendrecv, x, x, 0, 0)
    return plait.wait(here) + plait.wait(both)


def on_axis(f):
    """The operation on the mesh axis."""
    return lambda x, **token: f(x, comm="a", **token)


COLLECTIVES = {
    "allgather": plait.allgather,
    "allreduce": lambda x, **k: plait.allreduce(x, plait.SUM, **k),
    "allreduce of maxima": lambda x, **k: plait.allreduce(x, plait.MAX, **k),
    "allreduce of a pytree": lambda x, **k: plait.allreduce((x, x), plait.SUM, **k),
    "alltoall": plait.alltoall,
    "bcast": lambda x, **k: plait.bcast(x, 0, **k),
    "gather": lambda x, **k: plait.gather(x, 0, **k),
    "permute": lambda x, **k: plait.permute(x, [(0, 0)], **k),
    "reduce": lambda x, **k: plait.reduce(x, plait.SUM, 0, **k),
    "reduce_scatter": lambda x, **k: plait.reduce_scatter(x, plait.SUM, **k),
    "scan": lambda x, **k: plait.scan(x, plait.SUM, **k),
    "scatter": lambda x, **k: plait.scatter(x, 0, **k),
}
TRANSFERS = {
    "barrier": with_barrier,
    "send and recv": transfers,
    "sendrecv": lambda x, **k: plait.sendrecv(x, x, 0, 0, **k),
    "sendrecv from any": lambda x, **k: plait.sendrecv(x, x, plait.ANY_SOURCE, 0, **k),
}
GLOBAL = {
    "fft": plait.fft.pfft3d,
    "halo": lambda x: plait.halo.fold(
        plait.halo.exchange(plait.halo.pad(x, WIDTHS, spec=SPLIT), WIDTHS, spec=SPLIT),
        WIDTHS,
        spec=SPLIT,
    ),
    "redistribute": lambda x: plait.redistribute(x, P(None, "a")),
}
STARTED = {
    "allgather": in_halves(plait.allgather),
    "allreduce": in_halves(plait.allreduce, plait.SUM),
    "allreduce of maxima": in_halves(plait.allreduce, plait.MAX),
    "alltoall": in_halves(plait.alltoall),
    "bcast": in_halves(plait.bcast, 0),
    "gather": in_halves(plait.gather, 0),
    "permute": in_halves(plait.permute, [(0, 0)]),
    "reduce": in_halves(plait.reduce, plait.SUM, 0),
    "reduce_scatter": in_halves(plait.reduce_scatter, plait.SUM),
    "scan": in_halves(plait.scan, plait.SUM),
    "scatter": in_halves(plait.scatter, 0),
    "sendrecv from any": lambda x: plait.wait(
        plait.start(plait.sendrecv, x, x, plait.ANY_SOURCE, 0)
    ),
}
DENSE = {
    "cholesky": plait.linalg.cholesky,
    "eigh": plait.linalg.eigh,
    "lu": plait.linalg.lu,
    "matmul": lambda a: plait.linalg.matmul(a, a),
    "potri": plait.linalg.potri,
    "potrs": lambda a: plait.linalg.potrs(a, a),
    "qr": plait.linalg.qr,
    "solve": lambda a: plait.linalg.solve(a, a),
}


def tall(x):
    """Both modes: with Q, and without."""
    return plait.linalg.qr(x, spec=SPLIT), plait.linalg.qr(x, spec=SPLIT, mode="r")


def scalar(f):
    """A real function of an array, for derivatives."""
    return lambda x: sum(jnp.sum(abs(y) ** 2) for y in jax.tree.leaves(f(x)))


def variants(f):
    """The program, and its transforms by JAX."""
    yield "", f
    yield "grad of ", jax.grad(scalar(f))
    yield "grad of grad of ", jax.grad(scalar(jax.grad(scalar(f))))
    yield "jvp of ", lambda x: jax.jvp(f, (x,), (x,))
    yield "vmap of ", lambda x: jax.vmap(f)(jnp.stack([x, x]))


def programs():
    """Names, programs, operands."""
    for name, f in (COLLECTIVES | TRANSFERS).items():
        for kind, g in variants(f):
            yield kind + name, g, X[:1]
        yield f"grad of {name} by token", jax.grad(scalar(by_token(f))), X[:1]
    for name, f in STARTED.items():
        for kind, g in variants(f):
            yield f"{kind}started {name}", g, X[:1]
    yield "started transfers", transfers_in_halves, X[:1]
    for name, f in COLLECTIVES.items():
        for kind, g in variants(on_axis(f)):
            yield f"{kind}{name} of devices", in_region(g), jnp.concatenate([X, X])
    for name, f in GLOBAL.items():
        for where, x in (
            ("a device", meshes.put(CUBE, ONE)),
            ("a mesh", meshes.put(CUBE, MESH, P("a"))),
        ):
            for kind, g in variants(f):
                yield f"{kind}{name} on {where}", g, abs(x) if "grad" in kind else x


def lowered(f, x, platform):
    """The program as StableHLO: calls with operands, layouts, aliases, attributes, and tokens."""
    return jax.jit(f).trace(x).lower(lowering_platforms=(platform,)).as_text()


def targets(text):
    """The handlers that the program calls."""
    return sorted(set(re.findall(r"custom_call @(plait_\w+)", text)))


def calls(text):
    """Plait's calls alone, without the names of values, which count the operations between."""
    return [re.sub(r"%\w+(#\d+)?", "%", line) for line in text.splitlines() if "@plait_" in line]


BARRIER = re.compile(r"\s*(%\w+)(?::\d+)? = stablehlo.optimization_barrier (.*) : ")
VALUE = re.compile(r"%\d+(?:#\d+)?|%\w+")


def barriers_of(function):
    """By name of a barrier's result: the value that passes through the barrier."""
    same = {}
    for line in function.splitlines():
        if found := BARRIER.match(line):
            name, operands = found[1], [same.get(v, v) for v in found[2].split(", ")]
            many = len(operands) > 1
            same |= {f"{name}#{i}" if many else name: v for i, v in enumerate(operands)}
    return same


def without_barriers(text):
    """The program without barriers around calls, which CUDA adds; values numbered in order."""
    functions = []
    for function in text.split("func.func"):
        same, numbers = barriers_of(function), {}

        def renamed(found, same=same, numbers=numbers):
            name, _, index = same.get(found[0], found[0]).partition("#")
            return f"%{numbers.setdefault(name, len(numbers))}#{index}"

        lines = [line for line in function.splitlines() if not BARRIER.match(line)]
        functions.append(VALUE.sub(renamed, "\n".join(lines)))
    return functions


CALL = re.compile(r"@plait_\w+\((.*?)\) .* : \((.*)\) -> ")


def stand_alone(text):
    """Whether all operands of calls, except tokens, come from barriers."""
    for function in text.split("func.func"):
        made = [found[1] for line in function.splitlines() if (found := BARRIER.match(line))]
        for values, types in CALL.findall(function):
            for value, kind in zip(values.split(", "), types.split(", "), strict=True):
                if kind and "token" not in kind and value.partition("#")[0] not in made:
                    return False
    return "@plait_" in text


def compare(f, x, part=without_barriers):
    """The program's calls, and whether `part` is as on CUDA; or why CUDA refuses the program."""
    on_cpu = lowered(f, x, "cpu")
    try:
        on_cuda = lowered(f, x, "cuda")
    except plait.Error as error:
        return {"calls": targets(on_cpu), "refused": str(error)}
    same = part(on_cpu) == part(on_cuda)
    return {"calls": targets(on_cpu), "same": same, "alone": stand_alone(on_cuda)}


def main():
    """With "few": every seventh program, for the refusals."""
    chosen = list(programs())[:: 7 if sys.argv[1:] == ["few"] else 1]
    found = {name: compare(f, x) for name, f, x in chosen}
    # JAX makes permutations of pivots differently on CUDA
    found |= {name: compare(f, meshes.put(jnp.eye(4), ONE), calls) for name, f in DENSE.items()}
    found["tall qr"] = compare(tall, meshes.put(jnp.ones((4000, 8)), MESH, SPLIT), calls)
    print(json.dumps(found))


if __name__ == "__main__":
    main()
