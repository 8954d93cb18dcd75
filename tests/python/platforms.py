"""The platform of JAX that the tests run on: PLAIT_TEST_PLATFORM, by default cpu.

Launched ranks share the first device. With PLAIT_TEST_DEVICE=own each rank has its own device; with
PLAIT_TEST_DEVICE=apart all share the first device, and NCCL takes them for ranks on different
hosts. With PLAIT_TEST_FIT=1 a mesh that needs more devices than there are has one device along each
axis: most tests hold there, too. Tests that pass so on one CPU (PLAIT_TEST_PASSED=FILE, to which
their names are added) must pass on one GPU (PLAIT_TEST_ONLY=FILE).
"""

import functools
import math
import os
import pathlib
import subprocess
import sys

import jax

CHOSEN = os.environ.get("PLAIT_TEST_PLATFORM", "cpu")
HAS_OWN = os.environ.get("PLAIT_TEST_DEVICE") == "own"
IS_FITTED = os.environ.get("PLAIT_TEST_FIT") == "1"
PROBE = "import sys, jax; print(len(jax.devices(sys.argv[1])), 'devices')"


@functools.cache
def why_not():
    """Why there is no device of the platform; empty if there is one.

    Asks in a separate process: JAX must not look for devices here before it is configured.
    """
    if CHOSEN == "cpu":
        return ""
    done = subprocess.run(
        [sys.executable, "-c", PROBE, CHOSEN],
        capture_output=True,
        text=True,
        timeout=300,
        env=os.environ | {"XLA_PYTHON_CLIENT_PREALLOCATE": "false"},
    )
    return "" if done.returncode == 0 else (done.stderr.strip().splitlines() or ["no word"])[-1]


def choose():
    """Configure JAX and plait, before either looks for devices."""
    if os.environ.get("PLAIT_TEST_DEVICE") == "apart":
        rank = os.environ.get("PMI_RANK", os.environ.get("OMPI_COMM_WORLD_RANK", "0"))
        os.environ["NCCL_HOSTID"] = f"host of rank {rank}"
        os.environ["NCCL_MULTI_RANK_GPU_ENABLE"] = "1"
    is_another = CHOSEN != "cpu" and not why_not()
    jax.config.update("jax_platforms", f"{CHOSEN},cpu" if is_another else "cpu")
    if CHOSEN == "cuda":
        os.environ["PLAIT_CUDA"] = "1"


def skip_all(items):
    """Skip all tests if the platform has no device."""
    import pytest  # not for all importers: plait leaves the hooks alone where pytest is imported

    if why_not():
        for item in items:
            reason = f"PLAIT_TEST_PLATFORM={CHOSEN}: {why_not()}"
            item.add_marker(pytest.mark.skip(reason=reason))


def need(n_devices):
    """Skip a test that needs more devices than there are."""
    import pytest

    if (CHOSEN != "cpu" or IS_FITTED) and n_devices > len(jax.devices()):
        pytest.skip(f"needs {n_devices} devices, {len(jax.devices())} of {CHOSEN} is there")


def fit(shape):
    """The extents of a mesh of the devices there are; skips a test that needs more."""
    n = math.prod(shape)
    if IS_FITTED and n > len(jax.devices()):
        return (1,) * len(shape)
    need(n)
    return tuple(shape)


def keep_only(items, names):
    """Keep the tests that the file names."""
    chosen = set(pathlib.Path(names).read_text().splitlines())
    items[:] = [item for item in items if item.nodeid in chosen]
