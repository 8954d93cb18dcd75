"""Large collectives and sendrecv through JAX beside raw MPI."""

from _jobs import N_RANKS
from _result import JAX_DONATED, JAX_FRESH, Bound, Rounds

from rows import under_each_mpi

LIMIT_S = 15.0  # for each of many records
DONATED, SENDRECV = Bound(">=", 0.95), Bound(">=", 0.8)
DIRECT, MESSAGES = Bound(">=", 1.5), Bound(">=", 0.95)
WAYS = {"donated": JAX_DONATED, "fresh": JAX_FRESH}


def measure(jobs):
    """The rows of this group."""
    return under_each_mpi(jobs, "large collectives", JAX_FRESH, _under)


def _under(jobs, python):
    arguments = {"raw": jobs.raw_mpi(), "mib": ",".join(map(str, jobs.scale.mib))}
    arguments["seconds"] = min(LIMIT_S, jobs.scale.limit_s)
    rows = []
    for record in jobs.worker("bulk", arguments, N_RANKS, python=python):
        rounds = Rounds(record, jobs.scale.n_rounds)
        rows += [_row(rounds, record["name"], key) for key in WAYS if key in rounds.cases]
    return rows


def _bound(name, key, is_direct):
    """The bound of fresh results: what one-copy reads can gain, if available."""
    if key == "donated":
        return DONATED
    if name == "sendrecv":
        return SENDRECV
    return DIRECT if is_direct else MESSAGES


def _row(rounds, name, key):
    facts = rounds.facts
    row = rounds.row(
        f"large results, {N_RANKS} MPI ranks, {facts['mpi']}",
        f"{facts['mib']} MiB f32 {name}",
        WAYS[key],
        key,
        "raw",
        f"MPI_{name.capitalize()} in C, reused buffers, {facts['mpi']}",
        _bound(name, key, facts["direct"].startswith("on")),
    )
    row.note = _note(rounds, key)
    return row.judge(f"{row.speed:.2f} of its bandwidth", row.speed)


def _note(rounds, key):
    """What the time consists of, and the time of the bytes alone."""
    note = f"{rounds.median(lambda r: r[key] / r['memcpy']):.2f} memcpys"
    note += f"; {1e6 * rounds.median('call'):.0f} us of it the call of any program"
    if "copies" in rounds.cases:
        most = rounds.median(lambda r: r["raw"] / r["copies"])
        note += f"; its copies alone, to warm memory: {most:.2f} of MPI's bandwidth"
    return note
