"""Programs of other processes: from JAX's persistent compilation cache, and saved by hand."""

import os
import subprocess
import sys

import jax

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


SAVED = """
import pickle, sys
import jax, numpy as np, plait
from jax.experimental import serialize_executable as saving

path, *order = sys.argv[1:]
a = np.arange(64, dtype="f4").reshape(8, 8)

def put(order):
    mesh = jax.sharding.Mesh(np.array(jax.devices())[order], ("x",))
    return jax.device_put(a, jax.NamedSharding(mesh, jax.P("x")))

def f(v):
    return plait.redistribute(v, jax.P(None, "x"))

if order:
    assert np.array_equal(np.asarray(f(put([int(i) for i in order]))), a)
    with open(path, "rb") as file:
        compiled = saving.deserialize_and_load(*pickle.load(file))
    with plait.errors():
        found = np.asarray(compiled(put([0, 1, 2, 3])))
    print("right" if np.array_equal(found, a) else "wrong")
else:
    with open(path, "wb") as file:
        pickle.dump(saving.serialize(plait.jit(f).lower(put([0, 1, 2, 3])).compile()), file)
"""


def run_saved(*given):
    env = os.environ | {"JAX_NUM_CPU_DEVICES": "4"}
    job = [sys.executable, "-c", SAVED, *given]
    return subprocess.run(job, env=env, capture_output=True, text=True, timeout=120, check=False)


def test_saved_programs_run_on_the_ranks_they_are_for(tmp_path):
    path = str(tmp_path / "program")
    job = run_saved(path)
    assert job.returncode == 0, job.stderr
    assert run_saved(path, *"0123").stdout == "right\n"
    job = run_saved(path, *"3210")  # with the communicator number of 0123
    assert job.returncode != 0 and job.stdout == "", job.stdout
    assert "plait.CommError: redistribute: communicator #1" in job.stderr
    assert "has other ranks than in the process that compiled the program" in job.stderr


def test_programs_are_written_and_read(tmp_path):
    """Jaxlib before 0.11 crashes on results that are tokens; such programs are not cached."""
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
    is_kept_out = "for 'jit_of_mesh' because it uses host callbacks" in said[0]
    assert is_kept_out == (jax.__version_info__ < (0, 11))
    # the program of plait.jit has no token among its results
    assert said[1].count("cache hit for 'jit_of_mesh'") == (1 if is_kept_out else 2)
