"""Programs lowered for CUDA: the same calls with PLAIT_CUDA=1, named errors without it.

Nothing here needs a device.
"""

import json
import os
import pathlib
import subprocess
import sys

import pytest
from plait import _core

SCRIPT = pathlib.Path(__file__).with_name("lowerings.py")
DENSE = {
    *("gemm", "geqrf", "getrf", "heevd", "ormqr"),
    *("potrf", "potri", "potrs", "trsm", "tsqr"),
}
NEVER_STARTED = DENSE | {"fft", "halo_exchange", "halo_reduce", "redistribute"}


def run(*command, **variables):
    """The output of a Python program."""
    env = {k: v for k, v in os.environ.items() if k != "PLAIT_CUDA"} | variables
    done = subprocess.run(
        [sys.executable, *command], env=env, capture_output=True, text=True, timeout=600
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_programs_for_cuda_make_the_same_calls():
    found = json.loads(run(SCRIPT, PLAIT_CUDA="1"))
    called = set()
    for name, result in found.items():
        called |= set(result["calls"])
        assert result.get("same") and result["alone"], (name, result)
    rows = {row.target for row in _core.rows().values()}
    halves = {f"plait_start_{name}" for name in _core.rows() if name not in NEVER_STARTED}
    assert called == rows | halves | {"plait_wait"}


def test_without_the_setting_each_is_refused_by_name():
    found = json.loads(run(SCRIPT, "few"))
    assert len(found) > 30
    for name, result in found.items():
        operation, _, why = result["refused"].partition(": ")
        assert {f"plait_{operation}", f"plait_start_{operation}"} & set(result["calls"]), name
        assert "arrays are on a GPU" in why and "PLAIT_CUDA=0" in why


MESH = """
import types, plait
from plait import _comm, _core
gpu = types.SimpleNamespace(platform="gpu", id=5, process_index=0, local_hardware_id=1)
tpu = types.SimpleNamespace(platform="tpu")
assert plait.has_cuda_support() == _core.has_devices()
print(plait.has_cuda_support())
for devices in ([gpu], [gpu, tpu], [tpu]):
    try:
        _comm._check_platform(devices)
        print("fine")
    except (plait.Error, TypeError) as error:
        print(type(error).__name__, error)
far = types.SimpleNamespace(platform="gpu", id=6, process_index=1, local_hardware_id=None)
_comm._tracks = lambda platform: {5: 0, 6: 0}
rows = _comm._rows(((gpu,), (far, gpu)))
assert [(r.group, r.process, r.ordinal) for r in rows] == [(0, 0, 1), (1, 1, -1), (1, 0, 1)]
"""


def test_meshes_of_gpus():
    there, fine, *rest = run("-c", MESH, PLAIT_CUDA="1").splitlines()
    assert (there, fine) == ("True", "fine")
    assert all(
        line.startswith("TypeError") and "must be all CPUs or all GPUs, got" in line
        for line in rest
    )
    there, refused, *rest = run("-c", MESH).splitlines()
    assert there == "False" and refused.startswith("Error") and "PLAIT_CUDA=0" in refused
    assert all(line.startswith("TypeError") and "must be all CPUs, got" in line for line in rest)


READY = """
import plait
from plait import _core
try:
    _core.ready_device(0)
except plait.Error as error:
    print(error)
"""


def test_a_device_that_is_not_there_says_what_was_looked_for(tmp_path):
    said = run("-c", READY, PLAIT_CUDA="1", PLAIT_CUDA_DIR=str(tmp_path))
    assert "was not found" in said and f"no {tmp_path}/lib" in said
    assert "cannot be used: set PLAIT_CUDA=1 to use CUDA devices" in run("-c", READY)
    said = run("-c", "from plait import _core; print(_core.has_devices())", PLAIT_CUDA="yes")
    assert said == "False\n"


TPU = """
import jax, jax.numpy as jnp, plait
try:
    f = jax.jit(lambda x: plait.allreduce(x, plait.SUM))
    f.trace(jnp.ones(2)).lower(lowering_platforms=("tpu",))
except plait.Error as error:
    print(error)
"""


@pytest.mark.long(keep=1)
@pytest.mark.parametrize("setting", ["0", "1"])
def test_other_platforms_are_refused(setting):
    assert run("-c", TPU, PLAIT_CUDA=setting) == (
        "allreduce: not available on tpu, only on cpu and cuda\n"
    )


def test_tests_of_a_platform_that_is_not_there_are_skipped():
    tests = SCRIPT.with_name("test_abi.py")
    said = run(
        "-m", "pytest", "-q", "-rs", "-p", "no:cacheprovider", tests, PLAIT_TEST_PLATFORM="x"
    )
    assert "PLAIT_TEST_PLATFORM=x: RuntimeError: Unknown backend" in said
    assert "2 skipped" in said and "passed" not in said
