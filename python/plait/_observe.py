"""Lines about each operation, and what the library was built with."""

from plait import _core


def set_logging(is_on: bool) -> None:
    """Print two lines on standard output for each operation, or stop printing them.

    The second column is the number of the operation on its communicator, so lines of different
    ranks can be matched. ``PLAIT_DEBUG=1`` in the environment does the same from the
    start.

    Collective: no.  Shapes: none.  Raises: TypeError if ``is_on`` is neither True nor False.
    Adjoint: none.  Source: own; the format is that of mpi4jax.

    Example:
        >>> import plait
        >>> plait.set_logging(True)
        >>> plait.set_logging(False)
    """
    if is_on not in (False, True):
        raise TypeError(f"set_logging: is_on is {is_on!r}; expected True or False")
    _core.lib.plait_trace_set_lines(int(is_on))


def get_logging() -> bool:
    """Whether lines about each operation are printed.

    Collective: no.  Shapes: none.  Raises: nothing.  Adjoint: none.  Source: own.

    Example:
        >>> import plait
        >>> plait.get_logging()
        False
    """
    return bool(_core.lib.plait_trace_has_lines())


def has_cuda_support() -> bool:
    """Whether arrays in the memory of CUDA devices are accepted.

    They are accepted if JAX's CUDA plugin is there, unless ``PLAIT_CUDA=0`` or a ``JAX_PLATFORMS``
    without GPUs is in the environment, and always with ``PLAIT_CUDA=1``. Whether there are any CUDA
    devices is another question, which ``plait info`` answers.

    Collective: no.  Shapes: none.  Raises: nothing.  Adjoint: none.  Source: own, docs/gpu.md.

    Example:
        >>> import plait
        >>> plait.has_cuda_support()
        False
    """
    return _core.has_devices()


def has_sycl_support() -> bool:
    """Whether operations on arrays in the memory of SYCL devices are possible: no.

    Collective: no.  Shapes: none.  Raises: nothing.  Adjoint: none.  Source: own.

    Example:
        >>> import plait
        >>> plait.has_sycl_support()
        False
    """
    return False
