"""Cases whose operations are started when they are called, and waited for later."""

import contextlib

import plait

OPERATIONS = [
    *("allgather", "allgatherv", "allreduce", "alltoall", "alltoallv", "barrier", "bcast"),
    *("exscan", "gather", "gatherv", "maxloc", "minloc", "neighbor_allgather"),
    *("neighbor_alltoall", "permute", "pvary", "recv", "reduce", "reduce_scatter"),
    *("reduce_scatterv", "scan", "scatter", "scatterv", "send", "sendrecv", "shift"),
]


@contextlib.contextmanager
def started():
    """Inside the ``with`` block the public functions return handles."""
    own = {name: getattr(plait, name) for name in OPERATIONS}

    def start(f):
        return lambda *args, **kwargs: plait.start(f, *args, **kwargs)

    try:
        for name, f in own.items():
            setattr(plait, name, start(f))
        yield
    finally:
        for name, f in own.items():
            setattr(plait, name, f)


def all_of(chosen, xs, comm):
    """Start every case, compute, call another operation, and wait in reverse order."""
    with started():
        handles = {name: chosen[name][0].call(x, comm) for name, x in xs.items()}
    plait.barrier(comm=comm)
    got = {name: plait.wait(handles[name]) for name in reversed(handles)}
    return {name: got[name] for name in xs}


def plain(chosen, xs, comm):
    """The operations called as usual."""
    return {name: chosen[name][0].call(x, comm) for name, x in xs.items()}
