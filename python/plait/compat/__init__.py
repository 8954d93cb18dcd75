"""Adapters: programs written for another library run on plait by changing one import.

``plait.compat.mpi4jax`` (0.8 and 0.9), ``plait.compat.mpi4jax_tokens`` (up to 0.7),
``plait.compat.jpi``, ``plait.compat.jaxdecomp``, ``plait.compat.jaxmg`` (0.0.1), ``jaxmg_rows``
(up to 0.0.9) and ``jaxmg_grid`` (1.0 to 1.4); docs/compat.md says what differs.
"""
