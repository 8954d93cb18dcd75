"""Strict JAX, x64, and several devices in one process; one device under an MPI launcher."""

import os
import sys

import jax

sys.path.insert(0, os.path.dirname(__file__))
_LAUNCHED = any(name in os.environ for name in ("PMI_SIZE", "OMPI_COMM_WORLD_SIZE"))
N_DEVICES = 1 if _LAUNCHED else int(os.environ.get("PLAIT_TEST_DEVICES", "8"))

jax.config.update("jax_num_cpu_devices", N_DEVICES)
jax.config.update("jax_platforms", "cpu")
jax.config.update("jax_enable_x64", True)
jax.config.update("jax_numpy_rank_promotion", "raise")
jax.config.update("jax_numpy_dtype_promotion", "strict")
