"""Adapters: programs written for another library run on plait by changing one import.

``plait.compat.mpi4jax`` (0.8 and 0.9), ``plait.compat.mpi4jax_tokens`` (up to 0.7),
``plait.compat.jpi``, ``plait.compat.jaxdecomp`` and ``plait.compat.jaxmg`` (its layouts);
docs/compat.md says what differs.
"""
