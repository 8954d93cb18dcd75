"""mpi4jax.experimental up to 0.6."""

from collections.abc import Callable

from plait.compat.mpi4jax_tokens import notoken as notoken


def auto_tokenize(f: Callable) -> Callable:
    """Return ``f`` itself: operations run in program order, whatever their tokens.

    Collective: no.  Shapes: any.  Raises: nothing.  Adjoint: that of ``f``.
    Source: mpi4jax 0.3 to 0.6.

    Example:
        >>> import plait, jax.numpy as jnp
        >>> from plait.compat import mpi4jax_tokens as mpi4jax
        >>> twice = mpi4jax.experimental.auto_tokenize(lambda x: mpi4jax.bcast(x, 0)[0] * 2)
        >>> twice(jnp.ones(2)).tolist()
        [2.0, 2.0]
    """
    return f
