"""Eager calls from the second time on: from the arguments straight to the compiled program.

Judging arguments, flattening, and binding a primitive take some ten times as long as a small jitted
program. The outcome depends only on the values of the static arguments, on the communicator, and on
the arrays' shapes and dtypes. So the first call of each kind notes which program it came to, and
later calls of that kind run it directly.
"""

import functools
import inspect
import threading
from collections.abc import Callable, Sequence
from typing import Any, ParamSpec, TypeVar

import jax
import jax.numpy as jnp
from plait import _comm, _errors, _jax, _region, _sites, _turns, _xla

P = ParamSpec("P")
R = TypeVar("R")
K = TypeVar("K")

_ROOM = 4096
_MANY = 64  # programs of one primitive; further ones are general programs
_AXES = (str, tuple)  # types of comm= in a manual region
# Read in every call.
_NoArrays = _region.NoArrays
_mesh_context, _no_set_mesh = _jax.mesh_context, _jax.no_set_mesh
_config = jax.config
_statics: set[type] = {int, bool, type(None), _comm.Special}  # compared by value and type


def is_static(kind: type[K]) -> type[K]:
    """Decorator of a class whose instances can be told apart by their value."""
    _statics.add(kind)
    return kind


class _Notes(threading.local):
    """The programs that eager calls of this thread came to, recorded only while somebody asks."""

    runs: list[tuple] | None = None


_notes = _Notes()


class _Now(threading.local):
    """What takes over the operations of this thread's public functions (`_ops.bound_by`)."""

    binder: Callable[..., list] | None = None


now = _Now()


# ---- primitives ------------------------------------------------------------------------------


_programs: dict[int | None, dict[tuple, Callable]] = {}  # by communicator


def program(comm: int | None, primitive: Any, donated: tuple[int, ...], params: tuple) -> Callable:
    """One jitted region per set of parameters."""
    known, key = _programs.setdefault(comm, {}), (primitive, donated, params)
    found = known.get(key)
    if found is None:
        if len(known) >= _ROOM:
            known.clear()
        bound = functools.partial(primitive.bind, **dict(params))
        found = known.setdefault(key, _region.jit(bound, donate_argnums=donated))
    return found


def _forget(comm: int) -> None:
    """The communicator was freed: nobody needs its programs any more."""
    _programs.pop(comm, None)
    _turns.forget(comm)
    for known in _remembered:
        for key in [key for key in list(known) if key[0] == comm]:
            known.pop(key, None)


_comm.on_free.append(_forget)


def _is_one_of_many(comm: int | None, primitive: Any, params: tuple, donated: tuple) -> bool:
    known = _programs.get(comm, {})
    if donated or (primitive, donated, params) in known:
        return False
    return sum(key[0] is primitive for key in list(known)) >= _MANY


def define(
    primitive: Any,
    donated: Callable[[Sequence, dict], tuple[int, ...]],
    apart: dict | None = None,
    general: Callable[[Sequence, dict], tuple[Any, list, dict, int]] | None = None,
) -> None:
    """An eager call of the primitive runs a program and waits for it.

    The calling line is no parameter: the same program serves all lines. ``apart``: values for other
    parameters that do not affect the computation. ``general``: from operands and parameters,
    returns a primitive that does the same, its operands, which include some of the parameters, its
    parameters, and how many of the results are meant. Otherwise a program whose tags count its
    steps would compile one program for each step.
    """

    def impl(*args: Any, **params: Any) -> list:
        group = params.get("group")  # global operations have a mesh instead
        comm = None if group is None else group.comm
        site = params["site"] or _sites.here()  # 0: bound by `program`, under jax.disable_jit
        params |= {"site": 0, **(apart or {})}
        chosen, given, n_results = primitive, _alone(donated(args, params), args), None
        words = tuple(sorted(params.items()))
        if general is not None and _is_one_of_many(comm, primitive, words, given):
            chosen, args, params, n_results = general(args, params)
            words = tuple(sorted(params.items()))
        found = program(comm, chosen, given, words)
        found = found.outermost if _jax.trace_state_clean() else found
        with _jax.compiled():
            results = _run(found, comm, site, args)[:n_results]
        if _notes.runs is not None:
            _notes.runs.append((found, comm, args, results))
        return results

    primitive.def_impl(impl)


def _alone(donated: tuple[int, ...], args: Sequence) -> tuple[int, ...]:
    """The donated operands that do not also appear as another operand."""
    return tuple(i for i in donated if sum(x is args[i] for x in args) == 1)


def _run(program: Callable, comm: int | None, site: int, args: Sequence) -> list:
    """Runs a program for line ``site`` and waits for its end; failures get plait's exceptions.

    Also waits if the program has no results: until its end it may read the memory of NumPy arrays.
    """
    _sites.enter_eager(comm, site)
    if threading.get_ident() not in _turns.callers:
        _turns.note_caller()
    if _turns.are_kept:
        _turns.begin([comm])
    if _config.jax_debug_nans or _config.jax_debug_infs:
        program = functools.partial(_judged, program)
    if _xla.is_crowded:
        _turns.wait(args)
    try:
        results = program(*args)
        if type(results) is _NoArrays:
            results.hidden.block_until_ready()
            return results.result
        for x in results:
            x.block_until_ready()
    except Exception as error:  # JAX raises ValueError for some codes
        other = _errors.named(error)
        if other is error:
            raise
        raise other from None
    return results


def _judged(program: Callable, *args: Any) -> list:
    """With jax_debug_nans or jax_debug_infs: JAX's check after the program, and no more.

    JAX would run the operation once more by itself, and come here again.
    """
    kinds = {"nan": (_config.jax_debug_nans, jnp.isnan), "inf": (_config.jax_debug_infs, jnp.isinf)}
    with jax.debug_nans(False), jax.debug_infs(False):
        results = program(*args)
        for kind, (is_wanted, found) in kinds.items():
            for x in jax.tree.leaves(results) if is_wanted else ():
                parts = [shard.data for shard in x.addressable_shards]
                if jnp.issubdtype(x.dtype, jnp.inexact) and any(found(p).any() for p in parts):
                    raise FloatingPointError(f"invalid value ({kind}) encountered")
    return results


# ---- functions -------------------------------------------------------------------------------


def _key(name: str, order: tuple[str, ...], args: tuple, kwargs: dict) -> tuple[tuple | None, list]:
    """The key of a function's program, None if it cannot be told; and the arrays.

    The arrays are in the order of the function's parameters, ``order``, as the operands are. Every
    call passes through here, right after code that has filled the caches: each word counts.
    """
    comm, arrays = None, []
    if kwargs:
        comm, rest = _told(kwargs, order)
        if rest is None:
            return None, arrays
        kwargs = rest
    words = [_comm.resolve(comm, name).id(), *kwargs]
    for x in (*args, *kwargs.values()):
        kind = type(x)
        if kind is _jax.ArrayImpl:
            arrays.append(x)
            words.append(x.shape)
            words.append(x.dtype)
        elif kind in _statics:
            words.append(kind)
            words.append(x)
        else:
            return None, arrays
    if kwargs.get("donate") and len({id(x) for x in arrays}) < len(arrays):  # see `_alone`
        return None, arrays
    return tuple(words), arrays


def _told(kwargs: dict, order: tuple[str, ...]) -> tuple[Any, dict | None]:
    """``comm=``, and the other keywords in parameter order; None if they do not give a key."""
    comm, rest = None, kwargs
    if "comm" in kwargs:
        rest = kwargs.copy()
        comm = rest.pop("comm")
    n = len(rest)
    if n > 1:
        rest = {name: rest[name] for name in order if name in rest}
    is_told = len(rest) == n  # else there is an unknown keyword
    if not is_told or isinstance(comm, _AXES) or kwargs.get("replicated"):  # reads the environment
        return None, None
    return comm, rest


def _note(programs: dict, key: tuple, arrays: list, runs: list[tuple], result: Any) -> None:
    """Keeps a program if it got exactly these arrays and returned the call's result."""
    if len(runs) != 1:
        return
    found, comm, args, results = runs[0]
    is_same = len(args) == len(arrays) and all(map(lambda a, b: a is b, args, arrays))
    returns = results[0] is result if len(results) == 1 else not results and result is None
    if is_same and returns:
        if len(programs) >= _ROOM:
            programs.clear()
        # jax.jit's own callable: the caller has checked that no trace is active
        programs[key] = (found, comm)


def of_a_rank(f: Callable[P, R]) -> Callable[P, R]:
    """A function of the rank model: jax.set_mesh does not apply to eager calls.

    Otherwise the arrays that JAX makes from their operands, or from nothing, would be on all
    devices of that mesh.
    """

    @functools.wraps(f)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        if _jax.concrete_mesh() is None or not _jax.trace_state_clean():
            return f(*args, **kwargs)
        with _jax.alone():
            return f(*args, **kwargs)

    return call


_remembered: list[dict[tuple, tuple[Callable, int | None]]] = []  # one dict for each function


def remembered(f: Callable[P, R]) -> Callable[P, R]:
    """A function of the rank model, as `of_a_rank`, whose eager calls remember their programs."""
    programs: dict[tuple, tuple[Callable, int | None]] = {}
    _remembered.append(programs)
    order = tuple(inspect.signature(f).parameters)

    @functools.wraps(f)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        if now.binder is not None or not _jax.trace_state_clean():
            return f(*args, **kwargs)
        if _mesh_context.value is not _no_set_mesh and _jax.concrete_mesh() is not None:
            with _jax.alone():
                return call(*args, **kwargs)
        key, arrays = _key(f.__name__, order, args, kwargs)
        if key is None:
            return f(*args, **kwargs)
        found = programs.get(key)
        if found is not None:
            results: Any = _run(*found, _sites.here(), arrays)
            return results[0] if results else None
        _notes.runs = []
        try:
            result = f(*args, **kwargs)
            _note(programs, key, arrays, _notes.runs, result)
        finally:
            _notes.runs = None
        return result

    return call
