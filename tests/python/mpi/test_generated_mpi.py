"""Generated programs on MPI ranks; `make fuzz` runs more of them."""

import generate_check
import generate_mixed
import generate_space
import plait
import pytest

N_PROGRAMS, CHUNK, N_MIXED, N_FAULTS = 20, 10, 500, 15


@pytest.fixture(scope="module")
def comms():
    from mpi4py import MPI

    made = generate_space.communicators(MPI.COMM_WORLD)
    yield made
    for name, comm in made.items():
        if name != "world":
            comm.Free()


@pytest.mark.long(keep=1)
@pytest.mark.parametrize("is_linear", [False, True])
@pytest.mark.parametrize("first", range(0, N_PROGRAMS, CHUNK))
def test_programs(world, comms, first, is_linear):
    space = generate_space.Space.of_processes(world.size)
    for seed in range(first, first + CHUNK):
        program = generate_check.make(seed, space, is_linear)
        generate_check.on_process(program, space, comms, world.rank)


@pytest.mark.long
def test_mixed_programs(world, comms):
    """By effect, by token, eager, under plait.jit and jax.jit, with messages of one size."""
    two = {name: comms[name] for name in ("world", "copy")}
    programs = generate_mixed.Dispatched(two, world.rank, world.size)
    for seed in range(N_MIXED):
        programs.run(seed)


@pytest.mark.long
def test_planted_faults(world, comms):
    """One rank does something else at one place: all ranks raise, and all go on."""
    if world.size == 1:
        pytest.skip("one rank differs from no other")
    space = generate_space.Space.of_processes(world.size)
    for seed in range(N_FAULTS):
        generate_check.with_fault(seed, space, comms, world.rank)
        plait.barrier(comm=world)
