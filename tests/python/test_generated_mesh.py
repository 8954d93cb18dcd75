"""Generated programs of global arrays against the same of jax.numpy on one device."""

import generate_mesh
import pytest


@pytest.mark.long(keep=12)
@pytest.mark.parametrize("seed", range(48))
def test_program(seed):
    generate_mesh.check(seed)
