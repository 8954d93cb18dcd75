"""Ten thousand calls leave nothing behind, and freed communicators leave little."""

import leaks
import pytest


@pytest.mark.long(keep=1)
@pytest.mark.parametrize("way", ["eager", "jitted"])
def test_ten_thousand_calls(world, way):
    from mpi4py import MPI

    leaks.check(world, MPI, way)


@pytest.mark.long(keep=1)
@pytest.mark.parametrize("frees", ["plait", "MPI"])
def test_freed_communicators(world, frees):
    from mpi4py import MPI

    leaks.check_communicators(world, MPI, frees)
