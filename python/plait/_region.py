"""The region that hides the effect from what surrounds it: `region` and `jit`."""

import functools
import threading
import types
from collections.abc import Callable, Sequence
from typing import Any, Generic, ParamSpec, TypeVar, overload

import jax
import jax.extend.core as jex
import jax.numpy as jnp
import numpy as np
from jax.interpreters import ad, batching, mlir
from plait import _errors, _jax, _jax_programs, _queues, _turns, _xla

P = ParamSpec("P")
R = TypeVar("R")

# Part of the key of JAX's traces: a function traced outside is traced again inside.
_is_in_region = _jax.bool_state(
    name="plait_region",
    default=False,
    help="Whether a plait.region is being traced; set by plait alone.",
    include_in_jit_key=True,
    include_in_trace_context=True,
)


def is_in_region() -> bool:
    """Whether the current trace is in a region, where the effect costs nothing."""
    return bool(_is_in_region.value)


region_p = jex.Primitive("plait_region")
region_p.multiple_results = True
region_p.def_effectful_abstract_eval(
    lambda *args, jaxpr: ([v.aval for v in jaxpr.jaxpr.outvars], jaxpr.effects - {_jax.EFFECT})
)


def _region_jvp(primals: Sequence, tangents: Sequence, *, jaxpr: Any) -> tuple:
    tangents = tuple(map(ad.instantiate_zeros, tangents))
    return jax.jvp(_jax_programs.inline(jaxpr), tuple(primals), tangents)


def _region_batch(axis: Any, args: Sequence, dims: Sequence, *, jaxpr: Any) -> tuple:
    results = _in_region(_jax_programs.vmapped(axis, _jax_programs.inline(jaxpr), dims))(*args)
    return results, [0] * len(results)


def _region_transpose(cts: Sequence, *args: Any, jaxpr: Any) -> list:
    is_linear = [ad.is_undefined_primal(x) for x in args]
    given = [x for x, linear in zip(args, is_linear, strict=True) if not linear]
    avals = [x.aval for x in args if ad.is_undefined_primal(x)]

    def adjoint(cts: Sequence, given: Sequence) -> tuple:
        def of_linear(*xs: Any) -> list:
            rest = {True: iter(xs), False: iter(given)}
            return _jax_programs.inline(jaxpr)(*(next(rest[linear]) for linear in is_linear))

        return jax.linear_transpose(of_linear, *avals)(list(cts))

    found = iter(_in_region(adjoint)([*map(ad.instantiate_zeros, cts)], given))
    return [next(found) if linear else None for linear in is_linear]


region_p.def_impl(lambda *args, jaxpr: _jax_programs.inline(jaxpr)(*args))
mlir.register_lowering(region_p, _jax_programs.lower_region)
ad.primitive_jvps[region_p] = _region_jvp
ad.primitive_transposes[region_p] = _region_transpose
batching.fancy_primitive_batchers[region_p] = _region_batch
_jax_programs.lowers_inside(region_p)


class NoArrays:
    """The result of a function without leaves; a hidden array keeps the program alive."""

    def __init__(self, hidden: Any, result: Any):
        self.hidden, self.result = hidden, result


jax.tree_util.register_pytree_node(
    NoArrays, lambda n: ((n.hidden,), _Same(n.result)), lambda r, c: NoArrays(c[0], r.value)
)


class _Same:
    """Auxiliary data of a pytree node, compared by type only."""

    def __init__(self, value: Any):
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same)

    def __hash__(self) -> int:
        return 0


# Types of a program's values: NumPy's numbers and classes may be static arguments. In what jax.jit
# calls, only tracers are values, and static arguments stay the objects that they were.
ARRAYS, TRACERS = (jax.Array, jax.core.Tracer, np.ndarray), (jax.core.Tracer,)


def _region(f: Callable, communicators: "_Communicators | None" = None) -> Callable:
    """See `region`; communicators: where `jit` collects the communicators of the operations.

    With it, a function without results returns a `NoArrays`.
    """
    in_region = _in_region(f, communicators)

    @functools.wraps(f)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        # outside of traces nothing surrounds it, or jax.disable_jit is on
        return (in_region if _jax.is_tracing() else f)(*args, **kwargs)

    return wrapped


def _in_region(f: Callable, communicators: "_Communicators | None" = None) -> Callable:
    hides = communicators is not None
    values = TRACERS if hides else ARRAYS

    def wrapped(*args: Any, **kwargs: Any) -> Any:
        def has_values(node: Any) -> bool:
            return any(isinstance(leaf, values) for leaf in jax.tree.leaves(node))

        # an argument without values stays the object that it is; all others are made anew: their
        # nodes may hold on to the trace that made them, as those of flax.nnx do
        whole = {id(x) for x in (*args, *kwargs.values()) if not has_values(x)}
        leaves, tree = jax.tree.flatten((args, kwargs), lambda node: id(node) in whole)
        # references belong to the surrounding program
        if any(map(_jax_programs.is_ref, leaves)):
            return f(*args, **kwargs)
        is_array = [isinstance(leaf, values) for leaf in leaves]
        arrays = [leaf for leaf, found in zip(leaves, is_array, strict=True) if found]
        made = {}

        def on_arrays(*values: Any) -> list:
            rest = iter(values)
            given = [next(rest) if a else leaf for a, leaf in zip(is_array, leaves, strict=True)]
            a, k = jax.tree.unflatten(tree, given)
            out, made["tree"] = jax.tree.flatten(f(*a, **k))
            made["is_hidden"] = hides and not out
            return [jnp.zeros((0,), jnp.float32)] if made["is_hidden"] else out

        with _is_in_region(True):
            jaxpr, consts = _jax_programs.close_over_nothing(jax.make_jaxpr(on_arrays)(*arrays))
        if _jax.EFFECT in jaxpr.effects and not _jax_programs.has_refs(jaxpr):
            _queues.note_hidden()
            if communicators is not None:
                communicators.note(_jax_programs.communicators(jaxpr.jaxpr))
            out = region_p.bind(*consts, *arrays, jaxpr=jaxpr)
        else:
            out = _jax_programs.inline(jaxpr)(*consts, *arrays)
        if made["is_hidden"]:
            return NoArrays(out[0], jax.tree.unflatten(made["tree"], []))
        return jax.tree.unflatten(made["tree"], out)

    return wrapped


class _Communicators:
    """The communicators of the operations in all programs of a function, by number; None: meshes.

    (The program that one thread calls may use another communicator than the next thread's.)
    """

    def __init__(self) -> None:
        self.numbers: set[int | None] = set()
        self._are_known = False

    def note(self, found: set[int | None]) -> None:
        """Notes those of a traced program that is to be called."""
        if _turns.are_kept:
            _turns.enter(found - self.numbers)
        self.numbers = self.numbers & found if self._are_known else found
        self._are_known = True


def region(f: Callable[P, R]) -> Callable[P, R]:
    """Hide the order of the operations in ``f`` from the program around the call.

    Inside ``f`` program order is kept. Between ``f`` and the rest of the program only data
    dependencies give an order: operations that do not wait for a result of each other may come
    first on one rank and last on another, which is an error or a wrong sum. For example, the first
    product of an iterative solver is with zeros, and waits for nothing before the solve. So give
    such a function a communicator of its own.

    `plait.jit` does this for you at top level. Use `region` by hand for a function that you pass to
    a library which drops JAX effects, where `keep_order` cannot be used. There, functions of global
    arrays need `region` too, so that JAX says for which devices they are.

    Forward derivatives of a region, by `jax.jvp` and `jax.linearize`, are ordered with the program
    around them again, since otherwise only data would order them. A library that linearizes its
    argument by itself and drops effects, such as a Newton-Krylov solver, needs a region of the
    linear function: ``plait.region(lambda v: jax.jvp(f, (x,), (v,))[1])``.

    Collective: no.  Shapes: any.  Raises: what ``f`` raises.
    Adjoint: that of ``f``.  Source: own.

    Example:
        >>> import plait, jax, jax.numpy as jnp
        >>> double = plait.region(lambda x: 2 * plait.allreduce(x, plait.SUM))
        >>> jax.jit(double)(jnp.ones(2)).shape
        (2,)
    """
    return _region(f)


@overload
def jit(f: Callable[P, R], /, **options: Any) -> "Jitted[P, R]": ...
@overload
def jit(f: None = None, /, **options: Any) -> "Callable[[Callable[P, R]], Jitted[P, R]]": ...
def jit(f: Callable | None = None, /, **options: Any) -> Any:
    """Compile ``f`` as `jax.jit` does, and keep the dispatch of a call fast.

    A program with communication carries an effect, which switches JAX's fast dispatch off.
    At top level ``plait.jit`` hides the effect; inside another trace it is ``jax.jit``, so
    that the surrounding program orders everything. Functions without array results run, too.

    Programs with communication contain numbers of this process's communicators. So `jax.export`,
    and tools that save programs with it, do not take them. A compiled program that was saved all
    the same (jax.experimental.serialize_executable) raises a `plait.CommError` in a process where
    a number belongs to other devices or to none, and XLA's own error (no handler) in a process that
    has not called an operation before.

    Collective: no.  Shapes: any pytrees; the options are those of `jax.jit`.
    Raises: what ``f`` raises; failures of plait as subclasses of `plait.Error`.
    Adjoint: that of ``f``.  Source: own, docs/architecture.md.

    Example:
        >>> import plait, jax.numpy as jnp
        >>> step = plait.jit(lambda x: plait.allreduce(x, plait.SUM) + 1)
        >>> step(jnp.zeros(2)).tolist()
        [1.0, 1.0]
    """
    if f is None:
        return functools.partial(jit, **options)
    return Jitted(f, options)


# Read in every call.
_traces, _no_trace = _jax.traces, _jax.no_trace
_get_ident, _callers = threading.get_ident, _turns.callers


class Jitted(Generic[P, R]):
    """What `jit` makes of a function.

    Its attributes are in its type or in slots: functools.wraps, as in jax.grad and jax.vmap, copies
    an object's dictionary to the function around it, which would then have this ``lower``.
    """

    __slots__ = (
        "__dict__",
        "__weakref__",
        "_given",
        "_inner",
        "communicators",
        "last",
        "outermost",
    )

    def __init__(self, f: Callable[P, R], options: dict[str, Any]):
        functools.update_wrapper(self, f)
        self.communicators = _Communicators()
        in_region = _region(f, self.communicators)
        self.outermost = jax.jit(in_region, **_xla.with_option(options))
        self._inner = jax.jit(f, **options)
        self._given = (f, options)
        self.last: Any = None

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        try:
            if _traces.value is not _no_trace:  # a fifth of the cost of trace_state_clean
                return self._inner(*args, **kwargs)
            if _get_ident() not in _callers:
                _turns.note_caller()
            if _xla.is_crowded:
                _turns.wait((args, kwargs))
            if _turns.are_kept:
                _turns.begin(self.communicators.numbers)
            out = self.outermost(*args, **kwargs)
            if _turns.are_kept:
                _turns.end(self.communicators.numbers, out)
            if _xla.is_crowded:
                _turns.pace(out)
        except Exception as error:  # JAX raises ValueError for some codes
            other = _errors.named(error)
            if other is error:
                raise
            raise other from None
        if type(out) is NoArrays:
            self.last = out.hidden  # waiting for all results, at exit, includes this one
            return out.result
        return out

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        return self if instance is None else types.MethodType(self, instance)

    def __reduce__(self) -> tuple:
        """As for jax.jit: the function and the options; the reader compiles anew."""
        return Jitted, self._given

    def __repr__(self) -> str:
        return f"<plait.jit of {self.__wrapped__!r}>"  # type: ignore[attr-defined]

    def lower(self, *args: Any, **kwargs: Any) -> Any:
        """As for jax.jit."""
        return self._unless_hidden("lower", args, kwargs)

    def trace(self, *args: Any, **kwargs: Any) -> Any:
        """As for jax.jit."""
        return self._unless_hidden("trace", args, kwargs)

    def _unless_hidden(self, what: str, args: tuple, kwargs: dict[str, Any]) -> Any:
        """For the program that calls run; for a function without results, jax.jit's own program."""
        made = getattr(self.outermost, what)(*args, **kwargs)
        if type(made.out_info) is NoArrays:
            f, options = self._given
            made = getattr(jax.jit(f, **_xla.with_option(options)), what)(*args, **kwargs)
        return made

    def eval_shape(self, *args: Any, **kwargs: Any) -> Any:
        """As for jax.jit."""
        return self._inner.eval_shape(*args, **kwargs)

    def clear_cache(self) -> None:
        """As for jax.jit."""
        self.outermost.clear_cache()
        self._inner.clear_cache()

    def _cache_size(self) -> int:
        return self.outermost._cache_size()
