"""One GPU beside JAX's own operations, and two processes that share it beside MPI."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import plait
from _rounds import Case, Ranks, Threads, arguments, rounds
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

N_CALLS = 200
N_CELLS = (8, 4)


def random(shape, dtype):
    """On the device, the same each time."""
    keys = jax.random.split(jax.random.key(0))
    real = jnp.finfo(dtype).dtype
    x = jax.random.normal(keys[0], shape, real)
    if np.issubdtype(dtype, np.complexfloating):
        x = x + 1j * jax.random.normal(keys[1], shape, real)
    return x.astype(dtype)


class Gpu:
    """The first GPU, and the measurements on it."""

    def __init__(self, options):
        self.options, self.team = options, Threads(1)
        self.mesh = Mesh(np.array(jax.devices("cuda")[:1]), ("x",))

    def put(self, x):
        """A global array."""
        return jax.device_put(x, NamedSharding(self.mesh, P("x")))

    def compare(self, name, ours, theirs, x, facts, part=lambda y: y):
        """Times of two functions of an array, and plait's memory besides operand and result.

        part: takes from plait's result what JAX's result is.
        """
        y, z = part(ours(x)), theirs(x)
        wrong = float(jnp.abs(y - z).max() / jnp.abs(z).max())
        del y, z
        memory = ours.lower(x).compile().memory_analysis()
        facts |= {"difference": wrong, "work_bytes": memory.temp_size_in_bytes}
        facts |= {"bytes": x.nbytes, "jax": jax.__version__}
        facts["gpu"] = self.mesh.devices.flat[0].device_kind
        if not wrong < 100 * np.finfo(x.dtype).eps:
            raise RuntimeError(f"{name} differs from JAX's by {wrong}")
        cases = {
            "plait": Case(lambda: jax.block_until_ready(ours(x))),
            "jnp": Case(lambda: jax.block_until_ready(theirs(x))),
        }
        rounds(self.team, self.options, name, cases, facts)

    def transforms(self, n):
        """Transforms of three axes."""
        for kind, shape, dtype, ours, theirs in (
            ("pfft3d", n, "complex64", plait.fft.pfft3d, jnp.fft.fftn),
            ("prfft3d", n, "float32", plait.fft.prfft3d, jnp.fft.rfftn),
            ("pfft3d", n // 2, "complex128", plait.fft.pfft3d, jnp.fft.fftn),
        ):
            x = self.put(random((shape,) * 3, dtype))
            facts = {"name": f"{kind}, {shape}^3 {dtype}"}
            self.compare("transforms", plait.jit(ours), jax.jit(theirs), x, facts)

    def factors(self, n):
        """Cholesky factors."""
        for dtype in ("float32", "float64"):
            a = random((n, n), dtype)
            a = self.put((a + a.T) / 2 + 2 * n**0.5 * jnp.eye(n, dtype=dtype))
            factor = functools.partial(plait.linalg.cholesky, mesh=self.mesh, spec=P("x"))
            theirs = jax.jit(jnp.linalg.cholesky)
            facts = {"name": f"cholesky(a), {n}^2 {dtype}"}
            self.compare("factors", plait.jit(factor), theirs, a, facts, lambda f: f.l)
            facts = {"name": f"cholesky(a).l, {n}^2 {dtype}"}
            self.compare("factors", plait.jit(lambda a, f=factor: f(a).l), theirs, a, facts)

    def calls(self):
        """Consecutive operations of 128 B, and kernels of XLA's, launched one by one."""
        steps = {
            "jnp": lambda x: jax.lax.optimization_barrier(jnp.sin(x)),
            "allreduce": lambda x: plait.allreduce(x, plait.SUM),
            "bcast": lambda x: plait.bcast(x, 0),
            "halo exchange": lambda x: plait.halo.exchange(x, 1, mesh=self.mesh, spec=P("x")),
        }
        x = self.put(jnp.ones(N_CELLS, "float32"))

        def chain(step):
            def run(x):
                for _ in range(N_CALLS):
                    x = step(x)
                return x

            return plait.jit(run)

        def case(f):
            return Case(lambda: jax.block_until_ready(f(x)), n_calls=N_CALLS)

        cases = {name: case(chain(step)) for name, step in steps.items()}
        rounds(self.team, self.options, "calls", cases, {})


def beside_mpi(team, options, ours, n_bytes):
    """Times of a function of plait's, and of MPI with as many bytes between two ranks."""
    out, into = (np.ones(n_bytes, np.int8) for _ in range(2))
    peer = 1 - team.rank

    def exchanged():
        team.comm.Sendrecv(out, peer, recvbuf=into, source=peer)

    cases = {"plait": Case(lambda: ours().block_until_ready()), "mpi": Case(exchanged)}
    rounds(team, options, options.what, cases, {"n_bytes": n_bytes})


def staged(options, n_bytes):
    """Half of each rank's array to the other rank through pinned memory, and MPI with as much."""
    jax.distributed.initialize(cluster_detection_method="mpi4py", local_device_ids=[0])
    team = Ranks()
    plait.config.update("transpose_comm_backend", "MPI")
    mesh = Mesh(np.array(jax.devices()), ("x",))
    shape = (2 * n_bytes // 4 // 1024, 1024)
    x = jax.make_array_from_callback(
        (2 * shape[0], shape[1]), NamedSharding(mesh, P("x")), lambda i: np.ones(shape, np.float32)
    )
    turned = plait.jit(lambda x: plait.redistribute(x, P(None, "x"), mesh=mesh, spec=P("x")))
    beside_mpi(team, options, lambda: turned(x), n_bytes)


def matched(options, n_bytes):
    """A message from each rank to the other, as between nodes, and MPI with as much."""
    team = Ranks()
    peer = 1 - team.rank
    x = jnp.ones(n_bytes // 4, "float32")
    swapped = plait.jit(lambda x: plait.sendrecv(x, x, peer, peer))
    beside_mpi(team, options, lambda: swapped(x), n_bytes)


def main():
    """Measure."""
    options = arguments("what", "n")
    jax.config.update("jax_enable_x64", True)
    by_messages = {"staged": staged, "matched": matched}
    if options.what in by_messages:
        by_messages[options.what](options, int(options.n) << 20)
    elif options.what == "calls":
        Gpu(options).calls()
    else:
        getattr(Gpu(options), options.what)(int(options.n))


if __name__ == "__main__":
    main()
