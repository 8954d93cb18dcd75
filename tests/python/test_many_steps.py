"""Programs that look at no result, on more devices than there are threads for."""

import os
import subprocess
import sys

import pytest

HEAD = """
import jax, jax.numpy as jnp
from jax.sharding import AxisType, NamedSharding, PartitionSpec as P
import plait

jax.config.update("jax_num_cpu_devices", 4)
mesh = jax.make_mesh((4,), ("x",), axis_types=(AxisType.Auto,))
w = jax.device_put(jnp.ones((8, 8)), NamedSharding(mesh, P("x")))

def relax(w):
    return w / (1 + plait.sum(w, mesh=mesh) ** 2)

step = plait.jit(relax)
"""
PROGRAMS = {
    "steps": "for _ in range(1000): w = step(w)",
    "donated": "step = plait.jit(relax, donate_argnums=0)\nfor _ in range(1000): w = step(w)",
    "independent": "w = sum([step(w + i) for i in range(300)])",
    "transforms": """
step = plait.jit(lambda w: plait.fft.fftn(w, mesh=mesh, spec=P("x")))
w = sum([step(w) for _ in range(300)])
""",
    "transforms that are dropped": """
step = plait.jit(lambda w: plait.fft.fftn(w, mesh=mesh, spec=P("x")))
for _ in range(300): step(w)
""",
    "others between": """
for _ in range(30):
    w = step(w)
    for _ in range(50):
        w = w * 1.01
""",
    "others at once": """
for _ in range(30):
    w = step(w)
    w = w + sum([w * i for i in range(50)])
""",
    "jax.jit": "step = jax.jit(relax)\nfor _ in range(300): w = step(w)",
    "gradients": """
step = plait.jit(jax.grad(lambda w: (plait.fft.fftn(w, mesh=mesh, spec=P("x")).real ** 2).sum()))
for _ in range(500): w = step(w) / 200
""",
}


@pytest.mark.long(keep=2)
@pytest.mark.parametrize("name", PROGRAMS)
def test_nothing_stands_still(name):
    environment = os.environ | {"NPROC": "2", "PLAIT_TIMEOUT": "20", "JAX_PLATFORMS": "cpu"}
    environment.pop("JAX_NUM_CPU_DEVICES", None)
    program = f"{HEAD}\n{PROGRAMS[name]}\nprint(bool(jnp.isfinite(w).all()))"
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        env=environment,
        timeout=100,
        check=False,
    )
    assert done.stdout == "True\n", done.stderr[-2000:]
