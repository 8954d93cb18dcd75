"""Program order through primitives of other libraries, whose types say nothing of effects."""

import functools
import sys
from collections.abc import Callable, Sequence
from typing import Any

import jax.extend.core as jex
from plait import _jax, _jax_programs

_kept: set[Any] = set()


def keep_order(primitive: jex.Primitive) -> None:
    """Has what a primitive of another library does in program order, as what `jax.lax` does.

    For primitives that take functions, or jaxprs, and do in their lowering what they do eagerly,
    but whose type says nothing of effects. Of those is lineax's, by which optimistix and diffrax
    solve as well: operations in a `lineax.linear_solve`, its operator's or its solver's, are in
    the order of the program then, in loops, derivatives and batches too, and on global arrays.
    Said once, before the first program is traced. Without it such a program is a `plait.Error`
    under `plait.jit`, and JAX's KeyError with the same text under `jax.jit`.

    These libraries take inner products, norms, stopping tests and Newton's dense Jacobian of this
    rank's own numbers: let all ranks have the same unknowns, or solve on a mesh. Of unknowns that
    are split over ranks iterations stop at different steps, a `plait.PeerError`, or their numbers
    are wrong; explicit steps of diffrax want a ``norm`` that sums over ranks. A mesh for them has
    Auto axes: with Explicit ones they fail in JAX, with or without plait. With ``throw=True`` what
    fails on a mesh ends the process: XLA's other devices wait for the one that has raised.

    It is told to JAX for the whole process. It changes nothing where there are no operations of
    plait, but that what the primitive does is traced once more where it is not seen at once.

    Collective: no.  Shapes: none.
    Raises: TypeError for what is no primitive, or one whose eager form is compiled by JAX.
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
            f"keep_order: {primitive!r} is no primitive; expected a jax.extend.core.Primitive, of "
            "lineax lineax.internal.linear_solve_p"
        )
    for each in (primitive, *_batched(primitive)):
        if each not in _kept:
            _keep(each)
            _kept.add(each)


def _batched(primitive: Any) -> tuple:
    """The primitive that equinox binds under jax.vmap for those of its kind, of which this is."""
    theirs = sys.modules.get("equinox.internal._primitive")
    is_theirs = primitive in getattr(theirs, "_vprim_impl_registry", ())
    return (theirs._vprim_p,) if is_theirs else ()  # type: ignore[union-attr]


def _keep(primitive: Any) -> None:
    if _jax_programs.is_compiled_alone(primitive):
        raise TypeError(
            f"keep_order: {primitive} is compiled by JAX when it is called eagerly; expected one "
            "whose def_impl is a function of JAX's operations"
        )
    effects_of = functools.partial(_jax_programs.effects_in, primitive.impl)
    primitive.def_effectful_abstract_eval(_with_effect(primitive.abstract_eval, effects_of))
    _jax.needs_devices(primitive)


def _with_effect(abstract_eval: Callable, effects_of: Callable) -> Callable:
    """The same type, and the effect if there is one in what the primitive does."""

    def typed(*avals: Any, **params: Any) -> tuple[Sequence, Any]:
        results, effects = abstract_eval(*avals, **params)
        return results, {*effects, *(effects_of(avals, params) & {_jax.EFFECT})}

    return typed
