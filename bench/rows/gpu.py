"""One GPU beside JAX's own operations, and two processes that share it beside MPI."""

from _jobs import N_RANKS, Absent
from _result import JAX_FRESH, Bound, Rounds, Row, absent
from plait import _rank

ONE, TWO = "One GPU", "Two processes on one GPU"
AS_FAST = Bound(">=", 1.0, slack=0.03)
BEYOND = Bound("<=", 5)  # us that an operation takes beyond a kernel
SINGLE_LAUNCHES = {"XLA_FLAGS": "--xla_gpu_enable_command_buffer="}


def _work_memory(rounds):
    """Memory besides operand and result; the bound is one array."""
    facts = rounds.facts
    name, bound = f"work memory: {facts['name']}", Bound("<=", 1.0)
    share = facts["work_bytes"] / facts["bytes"]
    return Row(ONE, name, JAX_FRESH, "the operand", bound=bound).judge(f"{share:.2f} of it", share)


def _beside_jax(jobs, what, n):
    rows = []
    for record in jobs.worker("gpu", {"what": what, "n": n}, 0):
        rounds = Rounds(record, jobs.scale.n_rounds)
        facts = rounds.facts
        comparator = f"jnp, {facts['gpu']}, jax {facts['jax']}"
        row = rounds.row(ONE, facts["name"], JAX_FRESH, "plait", "jnp", comparator, AS_FAST)
        rows.append(row.judge(f"{row.speed:.3f}x", row.speed))
        if what == "transforms":
            rows.append(_work_memory(rounds))
    return rows


def _calls(jobs):
    """All with one launch each, as handlers are; otherwise XLA puts its own kernels into graphs."""
    rounds = Rounds(
        jobs.worker("gpu", {"what": "calls"}, 0, SINGLE_LAUNCHES)[0], jobs.scale.n_rounds
    )
    rows = []
    for name in ("allreduce", "bcast", "halo exchange"):
        row = rounds.row(ONE, f"{name}, 128 B", JAX_FRESH, name, "jnp", "a kernel of XLA's", BEYOND)
        more = 1e6 * rounds.median(lambda r, name=name: r[name] - r["jnp"])
        rows.append(row.judge(f"{more:.1f} us more", more))
    return rows


def _by_messages(jobs, what, name, environment=None):
    half = {"XLA_CLIENT_MEM_FRACTION": ".4"} | (environment or {})
    records = jobs.worker("gpu", {"what": what, "n": 64}, N_RANKS, half)
    rounds = Rounds(records[0], jobs.scale.n_rounds)
    comparator, bound = "MPI_Sendrecv of host memory", Bound(">=", 0.9)
    row = rounds.row(TWO, name, JAX_FRESH, "plait", "mpi", comparator, bound)
    return [row.judge(f"{row.speed:.2f}x", row.speed)]


def _staged(jobs):
    return _by_messages(jobs, "staged", "64 MiB by pinned memory and MPI")


def _matched(jobs):
    """As between nodes, where ranks do not read each other's memory."""
    return _by_messages(jobs, "matched", "sendrecv, 64 MiB in chunks", {"PLAIT_DIRECT": "off"})


def measure(jobs):
    """The rows of this group."""
    if _rank.n_gpus() == 0:
        return [absent(ONE, "everything", JAX_FRESH, "jnp", "no NVIDIA GPU here")]
    rows, n_fft, n_factor = [], *((256, 4096) if jobs.scale.is_quick else (512, 16384))
    for some in (
        lambda: _beside_jax(jobs, "transforms", n_fft),
        lambda: _beside_jax(jobs, "factors", n_factor),
        lambda: _calls(jobs),
        lambda: _staged(jobs),
        lambda: _matched(jobs),
    ):
        try:
            rows += some()
        except (Absent, RuntimeError) as error:
            rows.append(absent(ONE, "a worker", JAX_FRESH, "jnp", str(error)))
    return rows
