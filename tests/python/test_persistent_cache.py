"""Programs under JAX's persistent compilation cache, in processes of their own."""

import os
import subprocess
import sys

PROGRAM = """
import logging
import jax, jax.numpy as jnp, numpy as np, plait

logging.getLogger("jax._src.compiler").setLevel(logging.DEBUG)
logging.getLogger("jax._src.compiler").addHandler(logging.StreamHandler())
mesh = jax.make_mesh((4,), ("x",))
x = np.arange(16.0).reshape(4, 4)
x = jax.device_put(x, jax.NamedSharding(mesh, jax.P("x")))
want = np.fft.fftn(x)
for jit in (jax.jit, plait.jit):

    def of_mesh(x):
        return plait.fft.fftn(x)

    def of_ranks(x):
        plait.barrier()
        return plait.allreduce(x, plait.SUM)

    assert np.allclose(jit(of_mesh)(x), want, atol=1e-5)
    assert np.array_equal(jit(of_ranks)(jnp.arange(3.0)), np.arange(3.0))
assert np.allclose(plait.fft.fftn(x), want, atol=1e-5)
print("right")
"""


def test_programs_are_written_and_read(tmp_path):
    """Jaxlib crashes over results that are tokens; such programs are not written."""
    cache = {
        "JAX_COMPILATION_CACHE_DIR": str(tmp_path),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
        "JAX_NUM_CPU_DEVICES": "4",
    }
    said = []
    for _ in range(2):
        job = subprocess.run(
            [sys.executable, "-c", PROGRAM],
            env=os.environ | cache,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert (job.returncode, job.stdout) == (0, "right\n"), job.stderr
        said.append(job.stderr)
    assert "for 'jit_of_mesh' because it uses host callbacks" in said[0]
    assert "cache hit for 'jit_of_mesh'" in said[1]  # plait.jit's: no token is a result
