"""Generated programs in one process: its devices as ranks of a manual region; order."""

import generate_check
import generate_mixed
import generate_space
import meshes
import pytest

N_PROGRAMS, CHUNK, N_MIXED = 6, 6, 24


@pytest.mark.long(keep=1)
@pytest.mark.skipif(meshes.ENDS_OVER_EMPTY, reason="this JAX ends over operands without elements")
@pytest.mark.parametrize("is_linear", [False, True])
@pytest.mark.parametrize("shape", [(2, 2), (1, 3)])
@pytest.mark.parametrize("first", range(0, N_PROGRAMS, CHUNK))
def test_programs(first, shape, is_linear):
    space, mesh = generate_space.Space.of_devices(*shape), meshes.make(shape)
    for seed in range(first, first + CHUNK):
        program = generate_check.make(seed, space, is_linear)
        generate_check.on_devices(program, space, mesh)


@pytest.mark.long(keep=1)
@pytest.mark.parametrize("first", range(0, N_MIXED, CHUNK))
def test_order(first):
    for seed in range(first, first + CHUNK):
        generate_mixed.Compiled(seed).run()
