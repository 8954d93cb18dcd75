"""Programs lowered for CUDA: the same calls, where the library drives devices, else none.

Nothing here needs a device: the library is told of a driver that is never asked.
"""

import subprocess
import sys

import pytest

SCRIPT = """
import ctypes, sys
import jax, jax.numpy as jnp, numpy as np
import plait
from plait import _core

if sys.argv[1] == "driven":
    FINDER = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int, ctypes.c_void_p)
    finder = FINDER(lambda ordinal, device: 1)
    _core.lib.plait_device_set_finder(finder)
assert _core.has_devices() == (sys.argv[1] == "driven")

def text(f, *args, platform="cuda"):
    return jax.jit(f).trace(*args).lower(lowering_platforms=(platform,)).as_text()

x = jnp.ones((4, 4), jnp.complex64)
programs = {
    "allreduce": lambda x: plait.allreduce(x, plait.SUM),
    "alltoall": lambda x: plait.alltoall(x[None]),
    "fft": plait.fft.pfft3d,
    "grad": jax.grad(lambda x: plait.allreduce(abs(x) ** 2, plait.SUM).sum()),
}
operands = {"fft": jnp.ones((4, 4, 4), jnp.complex64), "grad": x.real}
for name, program in programs.items():
    x_of = operands.get(name, x)
    assert "plait_" in text(program, x_of, platform="cpu"), name
    try:
        lowered = text(program, x_of)
    except Exception as error:
        print(name, "refused", "cuda" in str(error))
    else:
        target = "plait_allreduce" if name == "grad" else "plait_" + name
        print(name, "lowered", target in lowered)
for row in _core.rows().values():
    assert hasattr(_core.lib, row.device_symbol), row.name
    assert row.host_only == (row.name in HOST_ONLY), row.name
a = jnp.ones((2, 2))
assert np.array_equal(plait.allreduce(a, plait.SUM), a)  # as ever on the host
"""

HOST_ONLY: set[str] = set()


@pytest.mark.parametrize("how", ["driven", "not driven"])
def test_programs_are_lowered_for_cuda(how):
    script = f"HOST_ONLY = {HOST_ONLY!r}\n" + SCRIPT
    command = [sys.executable, "-c", script, how]
    run = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert run.returncode == 0, run.stderr
    word = "lowered True" if how == "driven" else "refused True"
    names = ("allreduce", "alltoall", "fft", "grad")
    assert run.stdout.split("\n")[:-1] == [f"{name} {word}" for name in names]
