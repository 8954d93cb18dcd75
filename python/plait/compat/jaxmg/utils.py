"""JAXMg's utils: a random matrix, and facts about processes and devices."""

import hashlib
import os
import socket
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.sharding import NamedSharding
from plait import _jax


class JaxMgWarning(UserWarning):
    """The class of JAXMg's warnings, for filters."""


def random_psd(n: int, dtype: Any, seed: int) -> Array:
    """A random Hermitian positive definite matrix.

    Collective: no.  Shapes: (n, n).  Raises: as ``jax.random.normal``.
    Source: ``random_psd`` of JAXMg: G Gᴴ / n + 1e-5.

    Example:
        >>> from plait.compat.jaxmg.utils import random_psd
        >>> random_psd(4, "float32", 0).shape
        (4, 4)
    """
    g = jax.random.normal(jax.random.key(seed), (n, n), dtype=dtype)
    g = g / jnp.asarray(n**0.5, g.dtype)
    product = jnp.matmul(g, g.conj().T, precision="highest")
    return product + jnp.asarray(1e-5, g.dtype) * jnp.eye(n, dtype=g.dtype)


def get_mesh_and_spec_from_array(a: Array) -> tuple[Any, Any]:
    """Mesh and spec of an array that has a NamedSharding; else ValueError."""
    array = _jax.underlying(a)
    is_traced = isinstance(array, jax.core.Tracer)
    sharding = jax.typeof(array).sharding if is_traced else getattr(array, "sharding", None)
    if not isinstance(sharding, NamedSharding) or sharding.mesh.empty:
        raise ValueError("Array is not sharded with a NamedSharding, cannot extract mesh and spec.")
    return sharding.mesh, sharding.spec


def maybe_real_dtype_from_complex(dtype: Any) -> Any:
    """The dtype of a complex dtype's real part; other dtypes stay as they are."""
    return {"complex64": jnp.float32, "complex128": jnp.float64}.get(jnp.dtype(dtype).name, dtype)


def _n_machines() -> int:
    """How many different hosts the processes are on."""
    if jax.process_count() == 1:
        return 1
    from jax.experimental import multihost_utils

    digest = hashlib.blake2b(socket.gethostname().encode(), digest_size=16).digest()
    words = np.frombuffer(digest, np.uint32)
    return len(np.unique(np.atleast_2d(multihost_utils.process_allgather(words)), axis=0))


def determine_distributed_setup() -> tuple[int, int, int, str]:
    """Machines, devices of a machine, devices of a process, and "SPMD" or "MPMD".

    SPMD: one process on each machine. MPMD: one process for each device.

    Collective: over JAX's processes.  Shapes: none.
    Raises: ValueError if it is neither.
    Source: ``determine_distributed_setup`` of JAXMg.

    Example:
        >>> from plait.compat import jaxmg
        >>> jaxmg.determine_distributed_setup()[3]
        'SPMD'
    """
    n_machines, n_processes = _n_machines(), jax.process_count()
    n_local = jax.local_device_count()
    n_per_process = jax.device_count() // n_processes
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    is_gpu = jax.default_backend() == "gpu" and visible is not None
    n_visible = len(visible.split(",")) if is_gpu and visible is not None else n_local
    found = (
        f"Invalid distributed configuration detected: \n \t{n_machines} machine(s), "
        f"{n_processes} process(es), {n_local} local device(s), {n_visible} visible device(s)\n"
    )
    if n_processes == n_machines and n_local != n_visible:
        raise ValueError(
            found
            + "The number of local devices cannot differ from the visible devices in SPMD mode"
        )
    if n_processes != n_machines and n_per_process != 1:
        raise ValueError(
            found + "JAXMg requires either a single process per machine (SPMD)"
            "or a single process for each GPU (MPMD)"
        )
    mode = "SPMD" if n_processes == n_machines else "MPMD"
    return n_machines, jax.device_count() // n_machines, n_per_process, mode
