"""MPI communication, distributed FFTs, halo exchange and dense solvers inside ``jax.jit``, with
gradients.
"""  # noqa: D205, D415

from plait import _command, _versions

if not _command.starts_ranks():  # `plait run` needs none of this, and importing JAX takes seconds
    try:
        from plait._core import lib as _lib
        from plait._public import *  # noqa: F403
        from plait._public import __all__ as __all__
        from plait._xla import set_flags as _set_flags

        _set_flags()
        __version__: str = _lib.plait_version().decode()
    except (AttributeError, ImportError, OSError) as error:
        _versions.note(error)
        _command.end_without(error)
        raise
