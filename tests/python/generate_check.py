"""Runs generated programs on one rank, or on all devices of a mesh, and compares with NumPy."""

import functools

import generate
import generate_space
import generate_statements
import jax
import jax.numpy as jnp
import numpy as np
import plait

VALUES = ("plait.jit", "plait.jit", "jax.jit", "eager")
DERIVATIVES = ("vjp", "remat vjp", "jvp", "vmap vjp")
WRAP = {"eager": lambda f, **_: f, "jax.jit": jax.jit, "plait.jit": plait.jit}


def make(seed, space, is_linear):
    """The program of a seed."""
    ways = DERIVATIVES if is_linear else VALUES
    return generate.Generator(seed, space, is_linear).program(ways)


def function(program):
    """Compute results from (arguments, here), in the way in which the program is run."""

    def run(banks, here):
        return program.run(banks, here)

    def vjp(args, here, f=run):
        return jax.vjp(lambda b: f(b, here), args[0])[1](args[1])[0]

    def remat(banks, here):
        return jax.checkpoint(lambda b: run(b, here))(banks)

    return {
        "vjp": vjp,
        "remat vjp": lambda args, here: vjp(args, here, remat),
        "vmap vjp": lambda args, here: jax.vmap(lambda a: vjp(a, here))(args),
        "jvp": lambda args, here: jax.jvp(lambda b: run(b, here), *((a,) for a in args))[1],
    }.get(program.how, run)


# ---- what is expected ----------------------------------------------------------------------------


def weights(program, results, seed):
    """Cotangents of the results of all ranks: small integers, zero for the token."""
    rng = np.random.default_rng([program.seed, seed])
    return [
        (*jax.tree.map(lambda y: rng.integers(0, 3, y.shape).astype(y.dtype), r[:2]), np.float32(0))
        for r in results
    ]


def columns(program, space):
    """Banks of all ranks, with an axis behind: each element's row of the unit matrix."""
    sizes = [int(np.prod(kind.shape)) for kind in program.kinds]
    n_columns = space.n_ranks * generate_statements.SLOTS * sum(sizes)
    unit, at = np.eye(n_columns), 0
    every = []
    for _ in range(space.n_ranks):
        banks = []
        for kind, size in zip(program.kinds, sizes, strict=True):
            slots = []
            for _ in range(generate_statements.SLOTS):
                slots.append(unit[at : at + size].reshape(*kind.shape, n_columns))
                at += size
            banks.append(tuple(slots))
        every.append(tuple(banks))
    return every


def adjoint(program, space, cotangents):
    """Cotangents of the banks of all ranks: the program's matrix, transposed, times weights."""
    every = columns(program, space)
    n_columns = every[0][0][0].shape[-1]
    total = np.zeros(n_columns, complex)
    for result, weight in zip(program.want(every, space), cotangents, strict=True):
        pairs = zip(jax.tree.leaves(result[:2]), jax.tree.leaves(weight[:2]), strict=True)
        for y, w in pairs:
            total += np.tensordot(w.astype(complex), y, w.ndim)
    at, answer = 0, []
    for banks in every:
        flat, tree = jax.tree.flatten(banks)
        parts = []
        for x in flat:
            size = int(np.prod(x.shape[:-1]))
            parts.append(total[at : at + size].reshape(x.shape[:-1]))
            at += size
        answer.append(jax.tree.unflatten(tree, parts))
    return answer


def problem(program, space):
    """Arguments of all ranks, and all ranks' results."""
    banks = program.inputs(space.n_ranks)
    values = program.want(banks, space)
    if not program.is_linear:
        return banks, values
    if program.how == "jvp":
        tangents = program.inputs(space.n_ranks, 1)
        return list(zip(banks, tangents, strict=True)), program.want(tangents, space)
    cts = [weights(program, values, seed) for seed in (2, 3)]
    grads = [adjoint(program, space, ct) for ct in cts]
    if program.how != "vmap vjp":
        return list(zip(banks, cts[0], strict=True)), grads[0]
    others = program.inputs(space.n_ranks, 1)
    both = [list(zip(b, ct, strict=True)) for b, ct in zip((banks, others), cts, strict=True)]

    def stack(*two):
        return np.stack(two)

    return [jax.tree.map(stack, *two) for two in zip(*both, strict=True)], [
        jax.tree.map(stack, *two) for two in zip(*grads, strict=True)
    ]


def compare(program, got, want):
    """Compare numbers: exactly, or up to rounding for derivatives, whose numbers may be large."""
    got, want = jax.tree.leaves(got), jax.tree.leaves(want)
    assert len(got) == len(want), f"{len(got)} results, expected {len(want)}\n{program}"
    for i, (g, w) in enumerate(zip(got, want, strict=True)):
        g, w = np.asarray(g), np.asarray(w)
        assert g.shape == w.shape, f"result {i}: shape {g.shape}, expected {w.shape}\n{program}"
        if program.is_linear:  # sums of nonnegative numbers: no cancellation
            is_same = np.allclose(g, w, rtol=1e-5 if g.dtype.itemsize < 8 else 1e-6, atol=0)
        else:
            assert g.dtype == w.dtype, f"result {i}: {g.dtype}, expected {w.dtype}\n{program}"
            is_same = np.array_equal(g, w)
        assert is_same, f"result {i}:\n{g}\nexpected\n{w}\n{program}"


# ---- runs ----------------------------------------------------------------------------------------


def on_process(program, space, comms, rank):
    """The program on this process's rank."""
    args, want = problem(program, space)
    f = function(program)

    def call(args, flag):
        return f(args, generate_space.Here(space, comms, rank, flag))

    options = {} if program.how == "eager" else {"compiler_options": generate.QUICK}
    wrap = WRAP.get(program.how, plait.jit)
    got = wrap(call, **options)(jax.tree.map(jnp.asarray, args[rank]), jnp.int32(program.flag))
    compare(program, plait.block(got), want[rank])


def with_fault(seed, space, comms, rank):
    """Run a plain program in which one rank does something else: every rank must raise."""
    generator = generate.Generator(seed, space, is_plain=True)
    program, plant = generator.program(("eager",)), generator.plant()
    banks = jax.tree.map(jnp.asarray, program.inputs(space.n_ranks)[rank])
    is_planted = rank == seed % space.n_ranks
    here = generate_space.Here(space, comms, rank, 0, plant if is_planted else None)
    text = f"{program}\nrank {seed % space.n_ranks}: #{plant.serial} {plant.operation.text}"
    try:
        program.run(banks, here)
    except plait.MismatchError:
        return
    raise AssertionError(f"rank {rank} saw no mismatch\n{text}")


def altered(seed, space, comms, rank):
    """How a program ends on this rank if one rank does something else at one place.

    "right" if its results are those without the fault; the name of an error; or another text.
    """
    generator = generate.Generator(seed, space)
    program, plant = generator.program(VALUES), generator.alteration()
    args, want = problem(program, space)
    who = generator.rng.randrange(space.n_ranks)
    here = functools.partial(
        generate_space.Here, space, comms, rank, plant=plant if rank == who else None
    )
    options = {} if program.how == "eager" else {"compiler_options": generate.QUICK}
    f = WRAP[program.how](lambda banks, flag: program.run(banks, here(flag)), **options)
    try:
        with plait.errors():
            banks = jax.tree.map(jnp.asarray, args[rank])
            got = plait.block(f(banks, jnp.int32(program.flag)))
            for comm in comms.values():  # no rank leaves with an operation too few
                plait.barrier(comm=comm)
        compare(program, got, want[rank])
        return "right"
    except plait.Error as error:
        return type(error).__name__
    except Exception as error:
        what = plant and (plant.fault, plant.operation and plant.operation.text)
        return f"rank {who}: #{plant and plant.serial} {what}\n{type(error).__name__}: {error}"


def judge_altered(ends):
    """Either every rank raises an error of plait, or every rank has right results."""
    errors = {"MismatchError", "TruncationError", "PeerError", "CommError", "TimeoutError"}
    are_right = [end == "right" for end in ends]
    assert all(are_right) or set(ends) <= errors, "\n".join(map(str, enumerate(ends)))


def on_devices(program, space, mesh):
    """The program on all devices of a mesh."""
    args, want = problem(program, space)
    f = function(program)
    comms = {name: tuple(name) if len(name) > 1 else name for name in space.groups}
    spec = jax.sharding.PartitionSpec(("a", "b"))

    def call(args, flag):
        own = jax.tree.map(lambda x: x[0], args)
        y = f(own, generate_space.Here(space, comms, None, flag))
        return jax.tree.map(lambda x: x[None], y)

    none = jax.sharding.PartitionSpec()
    mapped = jax.shard_map(call, mesh=mesh, in_specs=(spec, none), out_specs=spec, check_vma=False)
    wrap = jax.jit if program.how in ("jax.jit", "eager") else plait.jit
    stacked = jax.tree.map(lambda *xs: jnp.stack(xs), *args)
    got = wrap(mapped, compiler_options=generate.QUICK)(stacked, jnp.int32(program.flag))
    got = jax.device_get(plait.block(got))
    for r in range(space.n_ranks):
        compare(program, jax.tree.map(lambda x, r=r: x[r], got), want[r])
