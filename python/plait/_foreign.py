"""Program order through primitives of other libraries, whose types say nothing of effects."""

import functools
import sys
from collections.abc import Callable, Sequence
from typing import Any

import jax.extend.core as jex
from plait import _jax, _jax_programs

_kept: set[Any] = set()


def keep_order(primitive: jex.Primitive) -> None:
    """Keep the operations inside a primitive of another library in program order.

    They are then ordered as those inside functions of `jax.lax` are. This is for primitives that
    take functions or jaxprs and do in their lowering what they do eagerly, but whose type says
    nothing of effects. lineax has such a primitive, and optimistix and diffrax solve with it, too.
    With `keep_order` the operations in a `lineax.linear_solve`, in its operator or its solver, are
    in program order, also in loops, derivatives and batches, and on global arrays.

    Call it once, before the first program is traced. Without it such a program raises a
    `plait.Error` under `plait.jit`, and JAX's KeyError with the same text under `jax.jit`.

    These libraries compute inner products, norms, stopping tests and Newton's dense Jacobian from
    this rank's own numbers:

    * Let all ranks have the same unknowns, or solve on a mesh. If unknowns are split over ranks,
      iterations stop at different steps, which is a `plait.PeerError`, or results are wrong.
    * Explicit steps of diffrax need a ``norm`` that sums over ranks.
    * A mesh for them needs Auto axes. With Explicit axes these libraries fail in JAX, with or
      without plait.
    * With ``throw=True`` a failure on a mesh ends the process: XLA's other devices wait for the
      device that has raised.

    The primitive is changed for the whole process. Where it contains no operations of plait this
    has no effect, except that what the primitive does is traced once more.

    Collective: no.  Shapes: none.
    Raises: TypeError for an argument that is not a primitive, or for a primitive that JAX compiles
    when it is called eagerly.
    Adjoint: that of the primitive.  Source: own, docs/architecture.md.

    Example:
        >>> import plait, jax
        >>> from jax.extend.core import Primitive
        >>> twice = Primitive("twice")
        >>> _ = twice.def_impl(lambda x: plait.allreduce(x, plait.SUM) + x)
        >>> _ = twice.def_abstract_eval(lambda x: x)
        >>> plait.keep_order(twice)  # of lineax: plait.keep_order(lineax.internal.linear_solve_p)
        >>> len(jax.make_jaxpr(twice.bind)(1.0).effects)
        1
    """
    if not isinstance(primitive, jex.Primitive):
        raise TypeError(
            f"keep_order: {primitive!r} is no primitive; expected a jax.extend.core.Primitive "
            "(for lineax: lineax.internal.linear_solve_p)"
        )
    for each in (primitive, *_batched(primitive)):
        if each not in _kept:
            _keep(each)
            _kept.add(each)


def _batched(primitive: Any) -> tuple:
    """If the primitive is equinox's own, the one that equinox binds for it under jax.vmap."""
    theirs = sys.modules.get("equinox.internal._primitive")
    is_theirs = primitive in getattr(theirs, "_vprim_impl_registry", ())
    return (theirs._vprim_p,) if is_theirs else ()  # type: ignore[union-attr]


def _keep(primitive: Any) -> None:
    if _jax_programs.is_compiled_alone(primitive):
        raise TypeError(
            f"keep_order: {primitive} is compiled by JAX when it is called eagerly; expected a "
            "primitive whose def_impl is a function of JAX's operations"
        )
    effects_of = functools.partial(_jax_programs.effects_in, primitive.impl)
    primitive.def_effectful_abstract_eval(_with_effect(primitive.abstract_eval, effects_of))
    _jax.needs_devices(primitive)


def _with_effect(abstract_eval: Callable, effects_of: Callable) -> Callable:
    """The same type, and plait's effect if the primitive's contents have it."""

    def typed(*avals: Any, **params: Any) -> tuple[Sequence, Any]:
        results, effects = abstract_eval(*avals, **params)
        return results, {*effects, *(effects_of(avals, params) & {_jax.EFFECT})}

    return typed
