"""Nothing is left of ten thousand calls."""

import leaks
import pytest


@pytest.mark.parametrize("way", ["eager", "jitted"])
def test_ten_thousand_calls(world, way):
    from mpi4py import MPI

    leaks.check(world, MPI, way)
