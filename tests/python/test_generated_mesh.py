"""Generated programs of global arrays, compared with jax.numpy on one device."""

import generate_mesh
import pytest


@pytest.mark.long(keep=6)
@pytest.mark.parametrize("seed", range(48))
def test_program(seed):
    generate_mesh.check(seed)
