"""Strict JAX, x64, and several devices in one process; one device under an MPI launcher.

PLAIT_TEST_PLATFORM=cuda: on GPUs, as many as there are; more in platforms.py.
"""

import gc
import os
import shutil
import sys
import tempfile

import jax

sys.path.insert(0, os.path.dirname(__file__))
import platforms
import tiers

_LAUNCHED = any(name in os.environ for name in ("PMI_SIZE", "OMPI_COMM_WORLD_SIZE"))
N_DEVICES = int(os.environ.get("PLAIT_TEST_DEVICES", "1" if _LAUNCHED else "8"))

jax.config.update("jax_num_cpu_devices", N_DEVICES)
platforms.choose()
jax.config.update("jax_enable_x64", True)
jax.config.update("jax_numpy_rank_promotion", "raise")
jax.config.update("jax_numpy_dtype_promotion", "strict")


def pytest_configure(config):
    config.addinivalue_line("markers", "long(keep=0): what a quick run leaves out (tiers.py)")


def pytest_collection_modifyitems(config, items):
    tiers.leave_out_long(config, items)
    if "PLAIT_TEST_ONLY" in os.environ:
        platforms.keep_only(items, os.environ["PLAIT_TEST_ONLY"])
    platforms.skip_all(items)


def pytest_runtest_logreport(report):
    is_told = "PLAIT_TEST_PASSED" in os.environ and "PYTEST_XDIST_WORKER" not in os.environ
    if is_told and report.when == "call" and report.passed:
        with open(os.environ["PLAIT_TEST_PASSED"], "a") as names:
            names.write(f"{report.nodeid}\n")


def pytest_terminal_summary(terminalreporter):
    if tiers.left_out:
        terminalreporter.write_line(f"{len(tiers.left_out)} long tests were left out")


def pytest_collection_finish():
    """Collect garbage less often: imported objects stay, and programs have very many objects."""
    gc.freeze()
    gc.set_threshold(50_000, 20, 50)


# Processes that tests kill leave their flight recorders here, apart from those of users.
if not _LAUNCHED and "PLAIT_FLIGHT" not in os.environ:
    os.environ["PLAIT_FLIGHT"] = tempfile.mkdtemp(prefix="plait-test-flights-")

    def pytest_unconfigure():
        shutil.rmtree(os.environ["PLAIT_FLIGHT"], ignore_errors=True)
