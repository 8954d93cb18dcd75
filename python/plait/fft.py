"""Fourier transforms of global arrays that are distributed over a mesh."""

import operator
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from jax import Array
from jax.sharding import PartitionSpec as P
from jax.typing import ArrayLike
from plait import _jax
from plait._fourier import Kind, along, three
from plait._spectral import convolve, frequencies, solve_poisson
from plait._trigonometric import dctn, dstn, idctn, idstn

if TYPE_CHECKING:
    from plait._tune import TunedMesh

__all__ = [
    "autotune",
    "dctn",
    "dstn",
    "fftconvolve",
    "fftfreqn",
    "fftn",
    "idctn",
    "idstn",
    "ifftn",
    "irfftn",
    "pfft3d",
    "pifft3d",
    "pirfft3d",
    "poisson",
    "prfft3d",
    "rfftfreqn",
    "rfftn",
]


def autotune(
    shape: Sequence[int],
    *,
    dtype: Any = "complex64",
    operations: str | Sequence[str] = ("pfft3d", "pifft3d"),
    layouts: str | Sequence[str] = ("transposed", "natural"),
    devices: Sequence[Any] | None = None,
    axis_names: Sequence[str] = ("x", "y"),
    repeats: int = 5,
    file: str | os.PathLike[str] | None = None,
    fresh: bool = False,
    verbose: bool = False,
) -> "TunedMesh":
    """Find the mesh on which transforms of ``shape`` are fastest, by measuring them here.

    Candidates are all grids of the devices (pencils, and slabs, with one axis of size 1) in each of
    ``layouts``, with each way of exchanging (`plait.config`; on GPUs the default and NCCL). They
    take turns. A candidate's time for one of ``operations`` (name it as often as a step calls it)
    is the median of ``repeats`` rounds, each that of the slowest process. Candidates that take more
    than twice the best time are measured twice only, and those that do not fit the shape not at
    all. Of all within 2 % of the best the first one is chosen: slabs and defaults come first.

    The result is a mesh for shardings with more attributes: ``spec`` for arrays to transform,
    ``layout`` for the transforms, ``settings`` for ``plait.config.set``, ``table`` with all
    measurements, ``report()``, the table as text, and ``padded_shape`` if no grid divides the
    shape. Inside jit pass ``spec=mesh.spec`` to transforms. The choice affects speed only.

    Measurements are kept in ``file`` (else ``PLAIT_TUNE_FILE``, else ``plait/tune.json`` in the
    user's cache), by machine, threads, shape, precision, layouts, operations and version. Later
    calls take them from there, unless they say ``fresh=True`` or ask for more ``repeats``. With
    ``file=""`` nothing is kept. A file that is not plait's is left unchanged, with a warning.
    ``verbose`` prints the table.

    Collective: over the processes of the devices; outside jit.  Shapes: three extents.
    Raises: ValueError for an impossible shape, dtype or name, and for an unknown backend in the
    environment; `plait.MismatchError` if processes ask for different things.
    Adjoint: none.  Source: own; notes of FFTW's manual, 4.3.2, on measured plans.

    Example:
        >>> import plait, jax
        >>> mesh = plait.fft.autotune((8, 8, 8), devices=jax.devices()[:1], file="")
        >>> tuple(mesh.spec), mesh.devices.shape
        (('x', 'y'), (1, 1))
    """
    from plait import _tune  # _tune calls this module

    problem = _tune.problem_of(shape, dtype, operations, layouts, devices, axis_names)
    if operator.index(repeats) < 1:
        raise ValueError(f"autotune: repeats is {repeats}; expected 1 or more")
    with _jax.alone():  # on meshes of its own
        return _tune.tune(problem, repeats, file, fresh, verbose)


def pfft3d(
    x: Array,
    *,
    norm: str | None = "backward",
    layout: str | P = "transposed",
    shape: Sequence[int] | None = None,
    mesh: Any = None,
    spec: Any = None,
    donate: bool = False,
) -> Array:
    """Transform three axes of a global array, distributed over its mesh.

    The result's axes are those of ``x``, in the same order. ``layout`` says how they are split:
    ``'natural'`` as in ``x``; ``'transposed'`` as the forward path ends, with each split one axis
    further (``P('x')`` to ``P(None, 'x')``, ``P('a', 'b')`` to ``P(None, 'a', 'b')``; half the
    traffic); or a PartitionSpec. Inside a jit on Auto axes the type of ``x`` does not say how it is
    split. Then ``spec`` does: the split of the operand, in transforms back that of the spectrum.
    Without ``spec`` the mesh axes are taken to split the leading axes in order.

    ``shape``, with or without the batch axis, is the shape of the data in an array with padding at
    its tail, for sizes that the mesh does not divide. The padding is not read. The result is padded
    with zeros as its own split needs; if it needs any, give ``shape`` here and to all functions
    that use the result.

    With ``donate=True`` the result takes the memory of ``x``, which cannot be used again, if every
    device's part has the same shape before and after; otherwise it changes nothing.

    Collective: over the mesh, in program order.  Shapes: (n0, n1, n2), or with one leading
    batch axis, to the same; real input is promoted to complex.
    Raises: ValueError for a size that the mesh does not divide, of ``x`` or of the result without
    ``shape``, for an unknown mesh, and for ``layout='transposed'`` if all axes are split.
    Adjoint: the same transform along the reversed path.
    Source: notes of FFTW's manual, 6.4; oracle ``tests/python/oracle.py::fft``.

    Example:
        >>> import plait, jax.numpy as jnp
        >>> plait.fft.pfft3d(jnp.ones((2, 2, 2)))[0, 0, 0].real.item()
        8.0
    """
    given = {"norm": norm, "mesh": mesh, "spec": spec, "donate": donate}
    return three(Kind("pfft3d", -1), x, layout, shape, given)


def pifft3d(
    x: Array,
    *,
    norm: str | None = "backward",
    layout: str | P = "transposed",
    shape: Sequence[int] | None = None,
    mesh: Any = None,
    spec: Any = None,
    donate: bool = False,
) -> Array:
    """Invert `pfft3d`: take an array in its layout and return one in the layout of its input.

    With ``layout='transposed'`` the operand is split as the result of `pfft3d`, and the result
    as the input of `pfft3d`; with ``'natural'`` both are split as the operand.

    Collective: over the mesh, in program order.  Shapes: as `pfft3d`.
    Raises: as `pfft3d`.  Adjoint: the same transform along the reversed path.
    Source: as `pfft3d`; oracle ``tests/python/oracle.py::fft``.

    Example:
        >>> import plait, jax.numpy as jnp
        >>> plait.fft.pifft3d(plait.fft.pfft3d(jnp.ones((2, 2, 2)))).real.sum().item()
        8.0
    """
    given = {"norm": norm, "mesh": mesh, "spec": spec, "donate": donate}
    return three(Kind("pifft3d", +1), x, layout, shape, given)


def prfft3d(
    x: Array,
    *,
    norm: str | None = "backward",
    layout: str | P = "transposed",
    shape: Sequence[int] | None = None,
    mesh: Any = None,
    spec: Any = None,
    donate: bool = False,
) -> Array:
    """`pfft3d` of real numbers: half the memory, traffic and work.

    The last axis of the result has n2 // 2 + 1 elements; the others would be their conjugates. If
    that axis is split and the mesh does not divide it, ``shape=x.shape`` allows padding by zeros.

    Collective: over the mesh, in program order.
    Shapes: (n0, n1, n2), or with one leading batch axis, to (n0, n1, n2 // 2 + 1).
    Raises: TypeError for complex numbers; as `pfft3d`.
    Adjoint: the transform back, with weight 1 for all elements.
    Source: as `pfft3d`; oracle ``tests/python/oracle.py::rfft``.

    Example:
        >>> import plait, jax.numpy as jnp
        >>> plait.fft.prfft3d(jnp.ones((2, 2, 4))).shape
        (2, 2, 3)
    """
    given = {"norm": norm, "mesh": mesh, "spec": spec, "donate": donate}
    return three(Kind("prfft3d", -1, "operand"), x, layout, shape, given)


def pirfft3d(
    x: Array,
    *,
    norm: str | None = "backward",
    layout: str | P = "transposed",
    shape: Sequence[int] | None = None,
    mesh: Any = None,
    spec: Any = None,
    donate: bool = False,
) -> Array:
    """Invert `prfft3d`; ``shape`` is that of the real array, by default (m0, m1, 2 (m2 - 1)).

    Imaginary parts where the last axis has frequency 0 or n2 / 2 count as 0, as in numpy.

    Collective: over the mesh, in program order.
    Shapes: (n0, n1, n2 // 2 + 1), or with one leading batch axis, to (n0, n1, n2).
    Raises: as `pfft3d`.
    Adjoint: the forward transform, with weight 2 for all elements but 0 and n2 / 2.
    Source: as `pfft3d`; oracle ``tests/python/oracle.py::irfft``.

    Example:
        >>> import plait, jax.numpy as jnp
        >>> y = plait.fft.prfft3d(jnp.ones((2, 2, 3)))
        >>> plait.fft.pirfft3d(y, shape=(2, 2, 3)).sum().item()
        12.0
    """
    given = {"norm": norm, "mesh": mesh, "spec": spec, "donate": donate}
    return three(Kind("pirfft3d", +1, "result"), x, layout, shape, given)


def fftn(
    x: Array,
    s: Sequence[int] | None = None,
    axes: Sequence[int] | None = None,
    norm: str | None = "backward",
    *,
    layout: str | P = "natural",
    shape: Sequence[int] | None = None,
    mesh: Any = None,
    spec: Any = None,
    donate: bool = False,
) -> Array:
    """Transform any axes of a global array of any rank.

    ``s``, ``axes`` and ``norm`` are numpy's. Other axes are batch axes; any axis may be split.
    ``layout`` says how the result is split: ``'natural'`` as ``x``, ``'transposed'`` as the path
    ends (half the traffic), or a PartitionSpec. ``shape`` is the shape of the data in an array with
    padding at its tail.

    Collective: over the mesh, in program order.  Shapes: any to the same, or to ``s``.
    Raises: as `pfft3d`; ValueError for axes out of bounds or named twice, and for
    ``layout='transposed'`` if all transformed axes are split.
    Adjoint: the same transform along the reversed path.
    Source: ``numpy.fft.fftn``; oracle ``tests/python/oracle.py``.

    Example:
        >>> import plait, jax.numpy as jnp
        >>> plait.fft.fftn(jnp.ones((3, 4)), axes=(1,))[:, 0].real.tolist()
        [4.0, 4.0, 4.0]
    """
    given = {"norm": norm, "layout": layout, "mesh": mesh, "spec": spec, "donate": donate}
    return along(Kind("fftn", -1), x, s, axes, shape, given)


def ifftn(
    x: Array,
    s: Sequence[int] | None = None,
    axes: Sequence[int] | None = None,
    norm: str | None = "backward",
    *,
    layout: str | P = "natural",
    shape: Sequence[int] | None = None,
    mesh: Any = None,
    spec: Any = None,
    donate: bool = False,
) -> Array:
    """Invert `fftn`.

    ``s``, ``axes`` and ``norm`` are numpy's. Other axes are batch axes; any axis may be split.
    ``layout`` says how the result is split: ``'natural'`` as ``x``, ``'transposed'`` as the path
    ends (half the traffic), or a PartitionSpec. ``shape`` is the shape of the data in an array with
    padding at its tail.

    Collective: over the mesh, in program order.  Shapes: any to the same, or to ``s``.
    Raises: as `pfft3d`; ValueError for axes out of bounds or named twice, and for
    ``layout='transposed'`` if all transformed axes are split.
    Adjoint: the same transform along the reversed path.
    Source: ``numpy.fft.ifftn``; oracle ``tests/python/oracle.py``.

    Example:
        >>> import plait, jax.numpy as jnp
        >>> plait.fft.ifftn(plait.fft.fftn(jnp.ones(3))).real.tolist()
        [1.0, 1.0, 1.0]
    """
    given = {"norm": norm, "layout": layout, "mesh": mesh, "spec": spec, "donate": donate}
    return along(Kind("ifftn", +1), x, s, axes, shape, given)


def rfftn(
    x: Array,
    s: Sequence[int] | None = None,
    axes: Sequence[int] | None = None,
    norm: str | None = "backward",
    *,
    layout: str | P = "natural",
    shape: Sequence[int] | None = None,
    mesh: Any = None,
    spec: Any = None,
    donate: bool = False,
) -> Array:
    """Transform any axes of a real global array; the last one named is halved.

    ``s``, ``axes`` and ``norm`` are numpy's. Other axes are batch axes; any axis may be split.
    ``layout`` says how the result is split: ``'natural'`` as ``x``, ``'transposed'`` as the path
    ends (half the traffic), or a PartitionSpec. ``shape`` is the shape of the data in an array with
    padding at its tail.

    Collective: over the mesh, in program order.  Shapes: n along the last axis named to n // 2 + 1.
    Raises: as `pfft3d`; ValueError for axes out of bounds or named twice, and for
    ``layout='transposed'`` if all transformed axes are split.
    Adjoint: the transform back, with weight 1 for all elements.
    Source: ``numpy.fft.rfftn``; oracle ``tests/python/oracle.py``.

    Example:
        >>> import plait, jax.numpy as jnp
        >>> plait.fft.rfftn(jnp.ones((3, 4))).shape
        (3, 3)
    """
    given = {"norm": norm, "layout": layout, "mesh": mesh, "spec": spec, "donate": donate}
    return along(Kind("rfftn", -1, "operand"), x, s, axes, shape, given)


def irfftn(
    x: Array,
    s: Sequence[int] | None = None,
    axes: Sequence[int] | None = None,
    norm: str | None = "backward",
    *,
    layout: str | P = "natural",
    shape: Sequence[int] | None = None,
    mesh: Any = None,
    spec: Any = None,
    donate: bool = False,
) -> Array:
    """Invert `rfftn`: real numbers from half of the spectrum.

    ``s``, ``axes`` and ``norm`` are numpy's. Other axes are batch axes; any axis may be split.
    ``layout`` says how the result is split: ``'natural'`` as ``x``, ``'transposed'`` as the path
    ends (half the traffic), or a PartitionSpec. ``shape`` is the shape of the data in the real
    array, where there is padding at the tail; (…, 2 (m - 1)) if neither ``shape`` nor ``s`` is
    given.

    Collective: over the mesh, in program order.
    Shapes: m along the last axis named to 2 (m - 1), or as ``shape`` or ``s`` says.
    Raises: as `pfft3d`; ValueError for axes out of bounds or named twice, and for
    ``layout='transposed'`` if all transformed axes are split.
    Adjoint: the forward transform, with weight 2 for all elements but 0 and n / 2.
    Source: ``numpy.fft.irfftn``; oracle ``tests/python/oracle.py``.

    Example:
        >>> import plait, jax.numpy as jnp
        >>> plait.fft.irfftn(plait.fft.rfftn(jnp.ones((2, 3))), s=(2, 3)).tolist()
        [[1.0, 1.0, 1.0], [1.0, 1.0, 1.0]]
    """
    given = {"norm": norm, "layout": layout, "mesh": mesh, "spec": spec, "donate": donate}
    return along(Kind("irfftn", +1, "result"), x, s, axes, shape, given)


def fftfreqn(
    y: Array,
    d: ArrayLike | Sequence[float] = 1.0,
    *,
    axes: Sequence[int] | None = None,
    shape: Sequence[int] | None = None,
    angular: bool = False,
    layout: str = "natural",
    mesh: Any = None,
    spec: Any = None,
) -> tuple[Array, ...]:
    """Frequencies along the axes of a spectrum, shaped to broadcast on it and split as it is.

    They are in cycles per unit of ``d``, the sample spacing (one, or one for each axis), as in
    numpy; with ``angular=True`` in radians. ``shape`` is the shape of the data in a spectrum with
    padding at its tail; there frequencies are 0. Each device computes those of its own part.

    Inside a jit on Auto axes the spectrum's type does not say how it is split. There give the
    ``layout`` of the transform that made it, or ``spec``, the split of the spectrum.

    Collective: no; nothing is communicated.
    Shapes: any to one array for each of ``axes``, with its extent along it and 1 along others.
    Raises: ValueError for axes out of bounds, a shape that does not fit.
    Adjoint: none; they are constants.
    Source: ``numpy.fft.fftfreq``; oracle ``tests/python/oracle.py::frequencies``.

    Example:
        >>> import plait, jax.numpy as jnp
        >>> kx, ky = plait.fft.fftfreqn(plait.fft.fftn(jnp.ones((4, 2))))
        >>> kx.ravel().tolist(), ky.tolist()
        ([0.0, 0.25, -0.5, -0.25], [[0.0, -0.5]])
    """
    given = {"mesh": mesh, "spec": spec}
    return frequencies(Kind("fftfreqn", -1), y, d, axes, shape, angular, layout, given)


def rfftfreqn(
    y: Array,
    d: ArrayLike | Sequence[float] = 1.0,
    *,
    axes: Sequence[int] | None = None,
    shape: Sequence[int] | None = None,
    angular: bool = False,
    layout: str = "natural",
    mesh: Any = None,
    spec: Any = None,
) -> tuple[Array, ...]:
    """`fftfreqn` for a spectrum of real numbers, whose last axis named is halved.

    ``shape`` is that of the real array. By default its halved axis was 2 (m - 1) long.

    Collective: no; nothing is communicated.  Shapes: as `fftfreqn`.
    Raises: as `fftfreqn`.  Adjoint: none; they are constants.
    Source: ``numpy.fft.rfftfreq``; oracle ``tests/python/oracle.py::frequencies``.

    Example:
        >>> import plait, jax.numpy as jnp
        >>> y = plait.fft.rfftn(jnp.ones((3, 5)))
        >>> plait.fft.rfftfreqn(y, 0.2, shape=(3, 5))[1].round(3).tolist()
        [[0.0, 1.0, 2.0]]
    """
    given = {"mesh": mesh, "spec": spec}
    kind = Kind("rfftfreqn", -1, "operand")
    return frequencies(kind, y, d, axes, shape, angular, layout, given)


def fftconvolve(
    a: Array,
    b: Array,
    *,
    mode: str = "full",
    axes: int | Sequence[int] | None = None,
    shape: Sequence[int] | None = None,
    mesh: Any = None,
    spec: Any = None,
) -> Array:
    """Convolve two arrays by transforms, real ones by real transforms.

    ``mode`` and ``axes`` are scipy's. Along the other axes sizes are equal or 1. The result is
    split as ``a``, for 'valid' as the larger operand. If the mesh does not divide its size, it has
    zeros at its tail. ``b`` may be on the same mesh, or as a kernel on no mesh. ``shape`` is the
    shape of the data in an ``a`` with padding at its tail.

    Collective: over the mesh, in program order.
    Shapes: n and m along an axis to n + m - 1, n or n - m + 1, for 'full', 'same' and 'valid'.
    Raises: ValueError for an unknown mode, shapes that do not fit; as `fftn`.
    Adjoint: that of the transforms: a correlation.
    Source: ``scipy.signal.fftconvolve``; oracle ``tests/python/oracle.py::convolve``.

    Example:
        >>> import plait, jax.numpy as jnp
        >>> plait.fft.fftconvolve(jnp.array([1.0, 2, 3]), jnp.array([1.0, 1])).round().tolist()
        [1.0, 3.0, 5.0, 3.0]
    """
    return convolve(a, b, mode, axes, shape, mesh, spec)


def poisson(
    f: Array,
    *,
    spacing: ArrayLike | Sequence[float] = 1.0,
    axes: Sequence[int] | None = None,
    ends: str | Sequence[str] = "periodic",
    shape: Sequence[int] | None = None,
    mesh: Any = None,
    spec: Any = None,
) -> Array:
    """Solve Poisson's equation on a grid: u whose Laplacian is ``f``.

    ``spacing`` is the distance of grid points, one or one for each axis. ``ends``, one or one for
    each axis, is ``'periodic'``, or says what is 0 at walls half a spacing from the first and last
    points: u (``'dirichlet'``) or its slope (``'neumann'``). The Laplacian is that of the
    trigonometric interpolant. Without a ``'dirichlet'`` axis the mean of ``f`` is ignored, and that
    of u is 0. Axes not named are batch axes. ``shape`` is the shape of the data in an ``f`` with
    padding at its tail, for sizes that the mesh does not divide; there the result is 0.

    Collective: over the mesh, in program order.
    Shapes: any to the same, with the padding that the mesh needs, split as ``f``.
    Raises: ValueError for a spacing of 0, unknown ends, sizes that the mesh does not divide;
    as `fftn`.
    Adjoint: itself.
    Source: own; oracle ``tests/python/oracle.py::poisson``.

    Example:
        >>> import plait, jax.numpy as jnp
        >>> x = jnp.linspace(0.0, 2 * jnp.pi, 8, endpoint=False)
        >>> u = plait.fft.poisson(jnp.cos(x), spacing=2 * jnp.pi / 8)
        >>> bool(jnp.allclose(u, -jnp.cos(x), atol=1e-6))
        True
    """
    return solve_poisson(f, spacing, axes, ends, shape, mesh, spec)


def __dir__() -> list[str]:
    return __all__  # for completion: without this module's imports
