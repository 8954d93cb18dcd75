"""JAXMg's example of several processes: a grid of 2 x 1 devices, one of each process."""

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P
from plait.compat import jaxmg

WHOLE = P(None, None)


def create_2d_mesh():
    """A row for each process, as in the example."""
    of_process = {}
    for device in jax.devices():
        of_process.setdefault(device.process_index, []).append(device)
    return Mesh(np.array([of_process[i] for i in sorted(of_process)]), ("x", "y"))


def main():
    jax.distributed.initialize(cluster_detection_method="mpi4py")
    mesh, n = create_2d_mesh(), 8
    a = np.diag(np.arange(1, n + 1, dtype=np.float32))
    where = NamedSharding(mesh, P(None, ("x", "y")))
    x = jax.make_array_from_callback(a.shape, where, lambda index: a[index])
    assert [shard.data.shape for shard in x.addressable_shards] == [(n, n // 2)]
    b = jax.make_array_from_callback(
        (n, 1), NamedSharding(mesh, WHOLE), lambda index: np.ones((n, 1), np.float32)[index]
    )
    want = 1 / np.arange(1.0, n + 1)
    gather = jax.jit(lambda x: x, out_shardings=NamedSharding(mesh, P(None, "y")))
    for given, names in ((gather(x), "y"), (x, ("x", "y"))):
        out, status = jaxmg.potrs(
            given, b, T_A=2, mesh=mesh, in_specs=(P(None, names), WHOLE), return_status=True
        )
        mine = out.addressable_data(0)
        print(bool(jnp.allclose(mine[:, 0], want)) and int(status) == 0)


main()
