"""The ranks' records of the same operations fit together."""

import jax
import jax.numpy as jnp
import plait
import pytest
from plait import _core, _record, _sites, _trace


def sums(x):
    return plait.bcast(plait.allreduce(x, plait.SUM), 0)


def test_lines_of_all_ranks_line_up(world, capfd):
    """Operations are counted per communicator; all ranks run all operations of this one."""
    comm = plait.Comm(world.Dup())
    f = plait.jit(lambda x: plait.bcast(plait.allreduce(x, plait.SUM, comm=comm), 0, comm=comm))
    plait.block(f(jnp.ones(4)))
    capfd.readouterr()
    plait.set_logging(True)
    try:
        plait.block(f(jnp.ones(4)))
    finally:
        plait.set_logging(False)
    mine = capfd.readouterr().out.splitlines()
    assert len(mine) == 4 and all(line.startswith(f"r{world.rank} | ") for line in mine)
    assert mine[1].split(" | ")[2].startswith("MPI_Allreduce done with code 0")
    every = world.allgather([line.split(" | ")[1:] for line in mine[::2]])
    assert all(lines == every[0] for lines in every)
    assert [int(number, 16) for number, _ in every[0]] == [
        int(every[0][0][0], 16),
        int(every[0][0][0], 16) + 1,
    ]


def test_programs_are_equal_whatever_else_a_rank_traced(world):
    """Call sites do not depend on what a rank has seen before."""
    for i in range(world.rank):
        _core.put_site(1000 + i, f"other.py:{i}")
        jax.make_jaxpr(lambda x: plait.allreduce(x, plait.MAX))(jnp.ones(i + 1))
    text = jax.jit(jax.grad(lambda x: sums(x).sum())).lower(jnp.ones(3)).as_text()
    assert "site = " in text
    assert len(set(world.allgather(text))) == 1


def test_failures_on_all_ranks_end_with_the_line(world):
    if world.size < 2:
        pytest.skip("needs two ranks")
    left, right = (world.rank - 1) % world.size, (world.rank + 1) % world.size
    with pytest.raises(plait.TruncationError) as caught:
        plait.sendrecv(jnp.ones(3), jnp.ones(2), left, right)
    assert " at test_observe_mpi.py:" in str(caught.value)


def test_flight_recorders_are_of_one_job(world):
    plait.barrier()
    flight = _record.own_flight()
    assert (flight.header.rank, flight.header.size) == (world.rank, world.size)
    assert flight.operations[-1].title == "barrier()"
    assert flight.operations[-1].where.startswith("test_observe_mpi.py:")
    assert len(set(world.allgather(flight.header.job))) == 1
    # Other jobs on this machine may have begun later.
    found = [f for f in _record.flights() if f.header.job == flight.header.job]
    ranks = {f.header.rank for f in _record.last_job(found)}
    assert world.allgather(ranks >= set(range(world.size))) == [True] * world.size


def test_clocks_of_one_node_differ_by_nothing(world):
    """Measured by messages; the error is at most half a round trip."""
    from mpi4py import MPI

    own = world.Dup()
    offset = _trace.measure_offsets(MPI, own)
    own.Free()
    assert abs(offset) < 5e6


def test_eager_calls_of_ranks_on_different_lines(world, capfd):
    """Ranks may be on other lines of the program: one compiled program serves them."""
    plait.allreduce(jnp.ones(2), plait.SUM)
    plait.set_logging(True)
    try:
        if world.rank == 0:
            plait.allreduce(jnp.ones(2), plait.SUM)
            line = _sites.text()
        else:
            plait.allreduce(jnp.ones(2), plait.SUM)
            line = _sites.text()
    finally:
        plait.set_logging(False)
    name, number = line.rsplit(":", 1)
    begin = capfd.readouterr().out.splitlines()[0]
    assert begin.endswith(f" at {name}:{int(number) - 1}")


def test_one_rank_explains_what_all_would_do(world):
    """The call waits for no other rank."""
    last = world.size - 1
    if world.rank == last:
        found = plait.explain(lambda x: plait.allgather(sums(x)), jnp.ones(4, jnp.float32))
        assert [call.name for call in found.calls] == ["allreduce", "bcast", "allgather"]
        assert {(call.rank, call.n_ranks) for call in found.calls} == {(last, world.size)}
        by = {"node": "shared memory"}.get(plait.Comm(world).transport, "messages")
        assert {call.way for call in found.calls} == {by}
        gathered = found.calls[-1]
        assert (gathered.messages, gathered.n_bytes) == (last, last * 16)
