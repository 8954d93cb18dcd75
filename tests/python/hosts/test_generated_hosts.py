"""Generated programs of global arrays, as in test_generated_mesh, on devices of all processes."""

import generate_mesh
import pytest


@pytest.mark.parametrize("seed", range(100, 105))
def test_program(seed):
    generate_mesh.check(seed)
