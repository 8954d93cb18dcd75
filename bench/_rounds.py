"""Interleaved rounds on one or several ranks, with a memcpy canary; the twin of c/rounds.c."""

import argparse
import concurrent.futures
import ctypes
import dataclasses
import json
import statistics
import time
from collections.abc import Callable

import numpy as np

CLEAN = 1.3  # ratio to the fastest canary of the job; as in c/rounds.c
CANARY_BYTES = 16 << 20
WARM_CALLS, WARM_S = 8, 8.0
SETTLE_S = 0.05  # idle threads of OpenBLAS spin for 27 ms; as in c/rounds.c


@dataclasses.dataclass
class Case:
    """Something to time: `run` does it `n_calls` times, to the end.

    If `run` returns a float, that is its own count of the seconds; any other result is freed after
    the time was taken. A solo case runs on rank 0 only, while the others sleep.
    """

    run: Callable
    n_calls: int = 1
    is_solo: bool = False


def copier(n_bytes, n_threads=1):
    """A memcpy of `n_bytes` by each of `n_threads` threads at once, between touched buffers."""
    pairs = [(np.full(n_bytes, 1, np.int8), np.full(n_bytes, 2, np.int8)) for _ in range(n_threads)]
    pool = concurrent.futures.ThreadPoolExecutor(n_threads)

    def one(pair):
        ctypes.memmove(pair[0].ctypes.data, pair[1].ctypes.data, n_bytes)

    def run():
        list(pool.map(one, pairs)) if n_threads > 1 else one(pairs[0])

    return run


class Threads:
    """One process whose devices are the ranks."""

    rank = 0

    def __init__(self, n_devices):
        self.copies = n_devices

    def barrier(self):
        """There is nothing to wait for."""

    nap = barrier

    def max(self, value):
        """The only value."""
        return value


class Ranks:
    """The ranks of MPI's world."""

    copies = 1

    def __init__(self):
        from mpi4py import MPI

        self.mpi, self.comm = MPI, MPI.COMM_WORLD
        self.rank = self.comm.rank

    def barrier(self):
        """Polls, so that all continue at once."""
        self.comm.Barrier()

    def nap(self):
        """A barrier that leaves the core to other processes."""
        request = self.comm.Ibarrier()
        while not request.Test():
            time.sleep(2e-4)

    def max(self, value):
        """The largest value of all ranks."""
        return self.comm.allreduce(value, self.mpi.MAX)


def arguments(*more):
    """The worker's command line; `more`: names of further arguments, with a text each."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--limit", type=int, default=60)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--out", default="")
    for name in more:
        parser.add_argument("--" + name, default="")
    return parser.parse_args()


def clean(canary):
    """Indices of the rounds whose canary was nearly as fast as the fastest one."""
    best = min(canary, default=0)
    return [i for i, seconds in enumerate(canary) if seconds <= CLEAN * best]


def _time(team, case, cores=None):
    """Seconds of a call; appends to `cores`, a list, the cores that this process kept busy."""
    runs = not case.is_solo or team.rank == 0
    team.nap() if case.is_solo else team.barrier()
    busy, begin = time.process_time(), time.perf_counter()
    own = case.run() if runs else None
    seconds = time.perf_counter() - begin if runs else 0.0
    if cores is not None and runs:
        cores.append((time.process_time() - busy) / seconds)
    if case.is_solo:
        team.nap()
        time.sleep(SETTLE_S)
    return team.max(own if isinstance(own, float) else seconds) / case.n_calls


def _warm_up(team, case):
    """Runs several times: after a few calls, fresh results use memory that malloc keeps."""
    spent = 0.0
    for i in range(WARM_CALLS):
        spent += _time(team, case) * case.n_calls
        if i > 0 and spent > WARM_S:
            break


def rounds(team, options, name, cases, facts=None):
    """Time the cases in turn until enough rounds are clean; rank 0 appends a line of JSON."""
    copy = copier(CANARY_BYTES, team.copies)
    canary_case = Case(copy)
    for case in [canary_case, *cases.values()]:
        _warm_up(team, case)
    canaries, times, cores = [], {key: [] for key in cases}, {key: [] for key in cases}
    begin = time.perf_counter()
    while len(canaries) < options.rounds or (
        len(clean(canaries)) < options.rounds
        and len(canaries) < options.limit
        and team.max(time.perf_counter() - begin) < options.seconds
    ):
        order = list(cases) if len(canaries) % 2 == 0 else list(cases)[::-1]
        worst = _time(team, canary_case)
        for key in order:
            times[key].append(_time(team, cases[key], cores[key]))
            worst = max(worst, _time(team, canary_case))
        canaries.append(worst)
    record = {"name": name, "facts": facts or {}, "canary": canaries, "cases": times}
    if team.rank == 0 and options.out:
        record["cores"] = {key: statistics.median(values) for key, values in cores.items()}
        with open(options.out, "a") as file:
            file.write(json.dumps(record) + "\n")
