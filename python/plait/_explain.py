"""What a function communicates, from its trace."""

import collections
import dataclasses
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
from plait import _comm, _core, _describe, _errors, _jax, _platforms
from plait._asked import Asked, Called


@dataclasses.dataclass(frozen=True)
class ExplainedCall:
    """One operation of the core in a program, as one rank carries it out.

    Its fields:
    * ``name``: the name of the operation in the core
    * ``title``: the operation with its arrays
    * ``site``: the line that calls it
    * ``times``: how often it runs, the product of the lengths of each `jax.lax.scan` around it
    * ``where``: the loops and branches around it for which a trace does not know how often they run
    * ``rank``: one of the ``n_ranks`` ranks that take part and reach each other by ``way``
    * ``messages``, ``n_bytes``: pieces and bytes that the rank takes from others each time
    * ``fences``: points at which all ranks wait for each other, each time
    * ``work_bytes``: memory besides operands and results, without the plan's scratch: two whole
      messages if ranks exchange messages, else less
    * ``plan``: the plan step by step, in words
    """

    name: str
    title: str
    site: str
    times: int
    where: str
    rank: int
    n_ranks: int
    way: str
    messages: int
    n_bytes: int
    fences: int
    work_bytes: int
    plan: str = dataclasses.field(repr=False)

    @property
    def who(self) -> str:
        """The rank, the number of ranks, and how they reach each other."""
        return f"rank {self.rank} of {self.n_ranks} by {self.way}"


@dataclasses.dataclass(frozen=True)
class Explanation:
    """What `explain` finds in a function: its ``calls`` in program order. It prints as a table.

    Sums count operations in a while loop or in a branch once.
    """

    calls: tuple[ExplainedCall, ...]

    @property
    def n_calls(self) -> int:
        """How many operations the program carries out."""
        return sum(call.times for call in self.calls)

    @property
    def messages(self) -> int:
        """Pieces that a rank takes from others."""
        return sum(call.times * call.messages for call in self.calls)

    @property
    def n_bytes(self) -> int:
        """Bytes that a rank takes from others."""
        return sum(call.times * call.n_bytes for call in self.calls)

    @property
    def work_bytes(self) -> int:
        """The most that one operation needs besides operands, results and its plan's scratch."""
        return max((call.work_bytes for call in self.calls), default=0)

    @property
    def plans(self) -> str:
        """The plans of all different operations, step by step."""
        return "\n".join(dict.fromkeys(call.plan for call in self.calls))

    def __str__(self) -> str:
        times: collections.Counter = collections.Counter()
        for call in self.calls:
            times[dataclasses.replace(call, times=1)] += call.times
        who = list(dict.fromkeys(call.who for call in self.calls))
        rows = [_HEAD, *(_row(call, n, len(who) > 1) for call, n in times.items())]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)][:-1]
        s = "" if self.n_calls == 1 else "s"
        total = f"{self.n_calls} operation{s}, {amount(self.n_bytes)} from other ranks"
        first = f"{', '.join(who) or 'no rank'}: {total}, work {amount(self.work_bytes)}"
        return "\n".join([first, *(_padded(row, widths) for row in rows if self.calls)])

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        """The table, where IPython shows the value of a cell."""
        printer.text(str(self))


_HEAD = ("times", "pieces", "bytes", "fences", "work", "operation")


def _row(call: ExplainedCall, n: int, with_rank: bool) -> tuple[str, ...]:
    more = [call.who] * with_rank + [f"at {call.site}"] + [call.where] * bool(call.where)
    numbers = (str(n), str(call.messages), amount(call.n_bytes), str(call.fences))
    return (*numbers, amount(call.work_bytes), ", ".join([call.title, *more]))


def _padded(row: Sequence[str], widths: Sequence[int]) -> str:
    """Numbers, right-aligned, and their units."""
    *numbers, last = row
    return "  ".join([*(w.rjust(n) for w, n in zip(numbers, widths, strict=True)), last])


def amount(n: int) -> str:
    """A number of bytes in readable units."""
    for unit, size in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if n >= size:
            return f"{n / size:.4g} {unit}"
    return f"{n} B"


@dataclasses.dataclass(frozen=True)
class _Around:
    """The loops, branches and mesh around an operation."""

    times: int = 1
    where: tuple[str, ...] = ()

    def again(self, n: int) -> "_Around":
        return dataclasses.replace(self, times=self.times * n)

    def within(self, what: str) -> "_Around":
        return dataclasses.replace(self, where=(*self.where, what))


def explain(
    f: Callable[..., Any], /, *args: Any, way: str | None = None, **kwargs: Any
) -> Explanation:
    """Say what ``f(*args, **kwargs)`` communicates, without running it.

    ``f`` is traced as by `jax.jit`, and each operation is planned as one rank plans it: this rank
    for an operation on a communicator, the first device for an operation on a mesh. Nothing runs,
    is compiled or communicated, and no other rank has to call this. So operands may be
    `jax.ShapeDtypeStruct`, split over a `jax.sharding.AbstractMesh` of more devices than exist.

    ``way`` says how ranks reach each other: ``"threads"`` of one process, processes with ``"shared
    memory"``, or ``"messages"``. None means as they do here, and messages if a mesh has more
    devices than exist. The plans are for arrays in host memory.

    Collective: no.
    Shapes: any; operands as for `jax.make_jaxpr`.
    Raises: what ``f`` raises; ValueError for an unknown ``way``.
    Adjoint: none; explain the derivative.  Source: own; ``fftw_print_plan``, FFTW's manual, 4.2.

    Example:
        >>> import jax, jax.numpy as jnp, plait
        >>> from jax.sharding import AbstractMesh, AxisType, NamedSharding, PartitionSpec as P
        >>> mesh = AbstractMesh((64,), ("x",), axis_types=(AxisType.Explicit,))
        >>> whole = (1024, 1024, 1024)
        >>> x = jax.ShapeDtypeStruct(whole, jnp.complex64, sharding=NamedSharding(mesh, P("x")))
        >>> found = plait.explain(plait.fft.pfft3d, x)
        >>> [call.name for call in found.calls], found.messages, found.n_bytes
        (['fft'], 63, 132120576)
    """
    if way is not None and way not in _describe.WAYS:
        raise ValueError(f"explain: way is {way!r}; expected None or one of {_describe.WAYS}")
    jaxpr = jax.make_jaxpr(jax.jit(f))(*args, **kwargs)
    found = operations(jaxpr.jaxpr)
    return Explanation(tuple(_planned(called, around, way) for called, around in found))


def operations(jaxpr: Any, around: _Around = _Around()) -> Iterator[tuple[Called, _Around]]:
    """The operations of the core in a jaxpr and in the jaxprs within it, in order."""
    for eqn in jaxpr.eqns:
        rule = _platforms.rules.get(eqn.primitive)
        if rule is None:
            yield from _of_inner(eqn, around)
            continue
        avals_in, avals_out = ([v.aval for v in s] for s in (eqn.invars, eqn.outvars))
        mesh = _platforms.mesh_in(eqn.params)
        asked = Asked(avals_in, avals_out, 1 if mesh is None else mesh.size)
        with eqn.ctx.manager:  # as JAX lowers it: in the context of its trace
            rule(asked, *eqn.invars, **eqn.params)
        if asked.called is not None:
            yield asked.called, around
        if asked.jaxpr is not None:
            yield from operations(asked.jaxpr.jaxpr, around)


def _of_inner(eqn: Any, around: _Around) -> Iterator[tuple[Called, _Around]]:
    inner = list(_inner(eqn, around))
    if not inner and _jax.EFFECT in eqn.effects:
        raise _errors.Error(
            f"explain: cannot look into a {eqn.primitive}, which communicates; explain the "
            "function that is inside it"
        )
    for jaxpr, place in inner:
        yield from operations(getattr(jaxpr, "jaxpr", jaxpr), place)


def _inner(eqn: Any, around: _Around) -> Iterator[tuple[Any, _Around]]:
    """The jaxprs that an equation runs, each with its surroundings."""
    name, params = eqn.primitive.name, eqn.params
    if name == "scan":
        yield params["jaxpr"], around.again(params["length"])
    elif name == "while":
        yield params["cond_jaxpr"], around.within("before each turn of a while loop")
        yield params["body_jaxpr"], around.within("in each turn of a while loop")
    elif name == "cond":
        n = len(params["branches"])
        for i, branch in enumerate(params["branches"]):
            yield branch, around.within(f"in branch {i} of {n}")
    elif name == "custom_linear_solve":  # the other jaxprs are for derivatives
        yield params["jaxprs"].solve, around
    else:
        for value in params.values():
            if hasattr(getattr(value, "jaxpr", value), "eqns"):
                yield value, around


def _planned(called: Called, around: _Around, way: str | None) -> ExplainedCall:
    group = called.params["group"]
    rank = group.rank or 0
    way = way or _way(group)
    plan = _describe.describe(called.name, called.params, group.size, rank, way, called.arrays)
    title, *_ = plan.text.partition(f", rank {rank} of {group.size} by ")
    return ExplainedCall(
        called.name,
        title,
        _core.site_text(called.params["site"]),
        around.times,
        ", ".join(reversed(around.where)),
        rank,
        group.size,
        way,
        plan.messages,
        plan.n_bytes,
        plan.fences,
        plan.work_bytes,
        plan.text,
    )


def _way(group: Any) -> str:
    """How the ranks of a group reach each other here."""
    threads, memory, messages = _describe.WAYS
    if group.comm not in (None, _comm.NOWHERE):
        transport = _core.comm_texts(group.comm)[0]
    elif group.size > jax.device_count():
        return messages
    elif jax.process_count() == 1:
        return threads
    else:
        transport = _comm.known_transport()
    return {"self": threads, "local": threads, "node": memory}.get(transport, messages)
