"""An operation that finds no memory for its work says so, and the next operation goes on."""

import programs

PROGRAM = """
import resource
n = 3 * 1_048_583  # a prime: what that works in is several times the array
x = jax.device_put(jnp.ones(n, "complex64"))
transform = jax.jit(lambda x: plait.fft.fftn(x, axes=(0,)))
jax.block_until_ready(transform(x[:8]))
compiled = transform.lower(x).compile()
limits = resource.getrlimit(resource.RLIMIT_AS)
size = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (size + 2 * x.nbytes, limits[1]))
try:
    with plait.errors():
        jax.block_until_ready(compiled(x))
except MemoryError as error:
    print(isinstance(error, plait.Error), type(error) is plait.MemoryError, error)
resource.setrlimit(resource.RLIMIT_AS, limits)
y = compiled(x)
print(float(abs(y[0])) == n, float(jnp.abs(y[1:]).max()) < 1)
"""


def test_it_is_a_memory_error_of_python_too():
    code, output = programs.run(PROGRAM, PLAIT_THREADS="1")
    assert code == 0, output
    first, last = output.splitlines()[:2]
    assert first.startswith("True True rank 0 of communicator #1, fft: no memory"), output
    assert last == "True True", output
