"""Write a page for each public function of plait, and one for all else: docs/operations/*.md.

And a page for each header of the C library: docs/headers/*.md.

make_reference.py          write the pages
make_reference.py --check  say which pages are not what would be written; 1 if there are any

Signature, texts and example come from the docstring. The operations of the core that a function
calls, for which dtypes and under vmap, come from tracing it as each of 4 ranks; their costs come
from the plans that the core makes. Nothing depends on the machine.
"""

import dataclasses
import doctest
import functools
import inspect
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import plait
import reference_headers
import reference_objects
from plait import _blas, _comm, _core, _dense_batch, _describe, _explain, _topology
from plait._asked import Called
from plait._describe import Plan
from plait._explain import amount

PAGES = Path(__file__).resolve().parent.parent / "docs" / "operations"
N_RANKS = 4
SIZES = (8, 1 << 20)  # float32 elements of one block
SIDES = (16, 128)  # of a global array of three axes
N_BATCH = 5
PLAN_LINES = 40  # lines shown of a plan
STAGING = 256 << 10  # fewer bytes than this are not mentioned; PLAIT_READ_CHUNK
LABELS = ("Collective", "Shapes", "Raises", "Adjoint", "Source", "Example")
FAMILIES = {
    "Reductions": ["plait._reduce"],
    "Movements": ["plait._move"],
    "Permutations and neighbours": ["plait._neighbor"],
    "Transfers between two ranks": ["plait._p2p"],
    "Global arrays": ["plait._redist", "plait.fft", "plait._trigonometric", "plait.halo"],
    "Linear algebra": [
        f"plait._{name}"
        for name in ("solve", "cholesky", "lu", "qr", "eigh", "svd", "matmul", "cond")
    ],
    "Parts, host memory, files": ["plait._io"],
    "Order, overlap, programs": ["plait._order", "plait._start", "plait._region", "plait._foreign"],
    "Failures, logs and plans": ["plait._errors", "plait._observe", "plait._explain"],
}


# ---- docstrings ----------------------------------------------------------------------------------


@dataclasses.dataclass
class Page:
    """A public function. parts: the labelled lines of its docstring, by label."""

    name: str
    function: Callable
    summary: str
    text: str
    parts: dict[str, str]

    @property
    def file(self) -> str:
        """The file name of the page."""
        return self.name.removeprefix("plait.") + ".md"

    @property
    def parameters(self) -> dict[str, inspect.Parameter]:
        """The parameters of the function."""
        return dict(inspect.signature(self.function).parameters)


def public() -> Iterator[tuple[str, Callable]]:
    """Names and functions of the public interface."""
    for module in (plait, plait.fft, plait.halo, plait.linalg):
        for name in module.__all__:
            if inspect.isfunction(getattr(module, name)):
                yield f"{module.__name__}.{name}", getattr(module, name)


def read(name: str, function: Callable) -> Page:
    """The parts of a docstring."""
    doc = inspect.cleandoc(function.__doc__ or "")
    before, parts = reference_headers.labelled(doc, LABELS)
    missing = [label for label in LABELS if label not in parts]
    if missing:
        raise SystemExit(f"{name}: the docstring lacks {', '.join(missing)}")
    summary, _, text = before.partition("\n\n")
    return Page(name, function, " ".join(summary.split()), text, parts)


def signature(page: Page) -> str:
    """The call, without types; on several lines if it is long."""
    text = reference_objects.call(page.function)
    if len(page.name + text) > 88:
        outside = re.sub(r", (?![^()]*\))", ",\n    ", text[1:-1])  # but not inside tuples
        text = f"(\n    {outside},\n)"
    return page.name + text


def linked(text: str, name: str, hrefs: dict[str, str]) -> str:
    """A docstring's text as Markdown: public names, documents and oracles become links.

    name: the owner of the text.  hrefs: where public names are described.
    """
    module = name.rpartition(".")[0]

    def link(match: re.Match) -> str:
        names = (f"{module}.{match[1]}", f"plait.{match[1]}", match[1])
        found = next((hrefs[known] for known in names if known in hrefs), None)
        is_other = found is not None and found != hrefs.get(name)
        return f"[`{match[1]}`]({found})" if is_other else f"`{match[1]}`"

    text = re.sub(r"(?<!`)`([\w.]+)`(?!`)", link, text)
    text = re.sub(r"``(tests/python/oracle\.py)::(\w+)``", r"[`\2`](../../\1) in NumPy", text)
    return re.sub(r"docs/(\w+)\.md", r"[\1](../\1.md)", text).replace("``", "`")


# ---- what a function calls -----------------------------------------------------------------------


class Ring(plait.Comm):
    """A communicator to trace with: one of 4 ranks, neighbours in a ring."""

    def __init__(self, rank: int):
        edges = [
            word
            for r in range(N_RANKS)
            for to, block in ((r - 1, 0), (r + 1, 1))
            for word in (r, block, to % N_RANKS, 1 - block)
        ]
        two, coords = (2,) * N_RANKS, tuple((r,) for r in range(N_RANKS))
        self.topology = _topology.Topology(two, two, tuple(edges), (N_RANKS,), (True,), coords)
        self.size, self.rank, self._state = N_RANKS, rank, {"is_freed": False}

    def id(self, mode: str = "effect") -> int:
        """No communicator of the core has this number."""
        return _comm.NOWHERE


@dataclasses.dataclass(frozen=True)
class Traced:
    """A call as one rank: operands and results in words, and the operations that it calls.

    is_spread: each device takes whole matrices of a batch.
    """

    operands: str
    results: str
    calls: list[Called]
    is_spread: bool


@functools.cache
def mesh() -> Any:
    """4 devices in a row."""
    return jax.make_mesh((N_RANKS,), ("x",), axis_types=(jax.sharding.AxisType.Auto,))


def in_words(arrays: Any) -> str:
    """Dtypes and shapes, as in float32[4, 8]."""
    leaves = jax.tree.leaves(arrays)
    return ", ".join(f"{x.dtype.name}{list(x.shape)}" for x in leaves) or "nothing"


OPERANDS = {"a", "b", "f", "x", "y", "sendbuf", "recvbuf"}  # parameters that are arrays


def trace(page: Page, x: Any, rank: int, op: Any = None, is_batched: bool = False) -> Traced:
    """The call with operands like x, and some value for every other required parameter."""
    names, ranks = page.parameters, range(N_RANKS)
    counts = [1] * N_RANKS
    values: dict[str, Any] = {
        **{name: x for name in OPERANDS},
        **{"op": op or plait.SUM, "root": 0, "axis": 0, "step": 1, "width": 1},
        **{"source": (rank - 1) % N_RANKS, "dest": (rank + 1) % N_RANKS},
        "perm": [(r, (r + 1) % N_RANKS) for r in ranks],
        "counts": [counts] * N_RANKS if page.name == "plait.alltoallv" else counts,
        "to_spec": jax.sharding.PartitionSpec(None, "x"),
        **{"comm": Ring(rank), "mesh": mesh(), "spec": jax.sharding.PartitionSpec("x")},
    }
    always = ("comm", "mesh", "source", *["spec"] * page.name.startswith("plait.halo."))
    given = {n: values[n] for n, p in names.items() if p.default is p.empty or n in always}
    arrays = {n: value for n, value in given.items() if value is x}
    function = functools.partial(page.function, **{n: given[n] for n in given if n not in arrays})
    if is_batched:
        function = jax.vmap(function)
        arrays = {n: jax.ShapeDtypeStruct((N_BATCH, *x.shape), x.dtype) for n in arrays}
    jaxpr, results = jax.make_jaxpr(function, return_shape=True)(**arrays)
    is_spread = f"{_dense_batch.spread_p()}[" in str(jaxpr)
    found = _explain.operations(jaxpr.jaxpr)
    # what every call does, as often as its loops run
    calls = [c for c, around in found if not around.where for _ in range(around.times)]
    return Traced(in_words(arrays), in_words(results), calls, is_spread)


def operand(page: Page, size: int, rank: int) -> Any:
    """A float32 array that the function accepts on this rank."""
    n = SIZES[size]
    shapes: list[tuple[int, ...]] = [(n,), (N_RANKS, n), (1, n), (2, n)]
    if "mesh" in page.parameters:
        shapes = [(SIDES[size],) * 3, (SIDES[size],) * 2]
    for shape in shapes:
        x = jax.ShapeDtypeStruct(shape, jnp.float32)
        try:
            trace(page, x, rank)
        except ValueError:
            continue  # the first axis needs another length
        return x
    raise SystemExit(f"{page.name}: none of the operands {shapes} is one that it takes")


def is_operation(page: Page) -> bool:
    """Whether the function has ranks, so that it can be traced as one of them."""
    return bool({"comm", "mesh"} & set(page.parameters))


# ---- dtypes, vmap, cost ----------------------------------------------------------------------


KINDS = {
    "integers": re.compile(r"u?int(8|16|32|64)"),
    "floating": re.compile(r"b?float(16|32|64)"),
    "complex": re.compile(r"complex(64|128)"),
    "float8": re.compile(r"float8\w*"),
}


def kinds() -> Iterator[str]:
    """The dtypes of each kind in words."""
    left = list(_core.dtypes())
    for kind, pattern in KINDS.items():
        members = [name for name in left if pattern.fullmatch(name)]
        left = [name for name in left if name not in members]
        yield f"* *{kind}*: {', '.join(members)}"
    yield f"* {', '.join(left)}"


def dtypes(page: Page, op: Any = None) -> str:
    """The dtypes that rank 0 may have; a kind by its name if the whole kind is accepted."""
    like, good, known = operand(page, 0, 0), [], list(_core.dtypes())
    for name in known:
        try:
            traced = trace(page, jax.ShapeDtypeStruct(like.shape, jnp.dtype(name)), 0, op)
            [describe(call, 0, _describe.WAYS[0]) for call in traced.calls]
        except (TypeError, ValueError):
            continue
        good.append(name)
    if good == known:
        return "all"
    for kind, pattern in KINDS.items():
        members = [name for name in known if pattern.fullmatch(name)]
        if set(members) <= set(good):
            place = good.index(members[0])
            good = [name for name in good if name not in members]
            good.insert(place, kind)
    return ", ".join(good)


def dtypes_by_op(page: Page) -> str:
    """The same, if it depends on the reduction."""
    reductions = [getattr(plait, name) for name in plait.__all__ if name.isupper()]
    reductions = [op for op in reductions if isinstance(op, type(plait.SUM))]
    by_text: dict[str, list[str]] = {}
    for op in reductions:
        by_text.setdefault(dtypes(page, op), []).append(op.name)
    return "; ".join(f"{', '.join(ops)} of {text}" for text, ops in by_text.items())


def batching(page: Page) -> str:
    """What vmap turns a call on rank 0 into."""
    x = operand(page, 0, 0)
    single, batch = trace(page, x, 0), trace(page, x, 0, is_batched=True)
    if batch.is_spread:
        return f"whole matrices on each device, if small: {batch.operands} to {batch.results}"
    names = [call.name for call in batch.calls]
    n = len(single.calls)
    if names[:n] != [call.name for call in single.calls]:
        raise SystemExit(f"{page.name}: vmap calls {names}")
    pairs = zip(batch.calls, single.calls, strict=False)
    if names and all(many.arrays == one.arrays for many, one in pairs):
        return f"matrices one after the other: {batch.operands} to {batch.results}"
    times = {0: "no communication", 1: "one call of the core"}.get(len(names), "the same calls")
    times += ", and those of branches," if len(names) > n else ""
    return f"{times} for the whole batch: {batch.operands} to {batch.results}"


def describe(call: Called, rank: int, way: str) -> Plan:
    """The plan of an operation."""
    return _describe.describe(call.name, call.params, N_RANKS, rank, way, call.arrays)


def portable(text: str) -> str:
    """The text of a plan without machine-dependent parts: instruction sets and caches."""
    chosen = r", (scratch \d+ bytes|written past the cache)"
    return re.sub(chosen, "", text) if "  kernel  " in text else text


def cost(calls: list[Called], rank: int, way: str) -> str:
    """The total cost of operations for a rank: fences, data from others, work memory."""
    plans = [describe(call, rank, way) for call in calls]
    text = "".join(plan.text for plan in plans)
    pieces, n_bytes = sum(plan.messages for plan in plans), sum(plan.n_bytes for plan in plans)
    fences = sum(plan.fences for plan in plans)
    work = max(plan.work_bytes + _staging(plan) for plan in plans)
    native = re.findall(r"^ +\d+  native  (allreduce|bcast|barrier)", text, re.MULTILINE)
    words = [f"{fences} fence{'s' * (fences > 1)}"] if fences else []
    sent = re.findall(r"^ +\d+  native  sendrecv, to \d+ tag \d+ \((\d+)", text, re.MULTILINE)
    times = {name: native.count(name) for name in native}
    words += [f"MPI's {name}" + (f" × {n}" if n > 1 else "") for name, n in times.items()]
    words += [f"sends {amount(int(n))}" for n in sent]
    words += [f"{pieces} piece{'s' * (pieces > 1)}"] if pieces and not native else []
    words += [amount(n_bytes)] if pieces else []
    words += [f"work {amount(work)}"] if work else []
    return ", ".join(words) or "nothing"


def _staging(plan: Plan) -> int:
    """Bytes of its scratch, if they do not depend on caches and are worth mentioning."""
    has_kernels = "  kernel  " in plan.text
    return 0 if has_kernels or plan.scratch_bytes <= STAGING else plan.scratch_bytes


def cost_rows(page: Page, size: int) -> list[str]:
    """Lines of the table; ranks with equal lines share one."""
    ranks: dict[str, list[int]] = {}
    for rank in range(N_RANKS):
        traced = trace(page, operand(page, size, rank), rank)
        each = " | ".join(cost(traced.calls, rank, way) for way in _describe.WAYS)
        ranks.setdefault(f"{traced.operands} → {traced.results} | {each} |", []).append(rank)
    return [
        f"| {'all' if len(same) == N_RANKS else ', '.join(map(str, same))} | {line}"
        for line, same in ranks.items()
    ]


def costs(page: Page) -> list[str]:
    """The section on costs."""
    calls = trace(page, operand(page, 1, 0), 0).calls
    if not calls:
        return ["## Cost", "", "The call itself communicates nothing.", ""]
    where = "4 devices, split along the first axis" if "mesh" in page.parameters else "4 ranks"
    plan = "".join(portable(describe(call, 0, "shared memory").text) for call in calls)
    return [
        *("## Cost", ""),
        *(f"On {where} ([what the words mean](README.md#cost)):", ""),
        "| rank | operand → result | " + " | ".join(_describe.WAYS) + " |",
        "|---|---|" + "---|" * len(_describe.WAYS),
        *dict.fromkeys(row for size in range(len(SIZES)) for row in cost_rows(page, size)),
        "",
        "The plan of the larger on rank 0, in shared memory:",
        *("", "```", shortened(plan.rstrip()), "```", ""),
    ]


def shortened(text: str) -> str:
    """The first lines of a long text, and the number of further lines."""
    lines = text.splitlines()
    more = len(lines) - PLAN_LINES
    return text if more <= 0 else "\n".join([*lines[:PLAN_LINES], f"… and {more} lines more"])


# ---- pages ---------------------------------------------------------------------------------------


def example(page: Page) -> list[str]:
    """The doctest as a program, its output as comments."""
    imports, lines = [], []
    for part in doctest.DocTestParser().get_examples(page.parts["Example"]):
        source = re.sub(r" *# doctest:.*", "", part.source).rstrip()
        is_import = source.startswith(("import ", "from "))
        (imports if is_import else lines).extend(source.splitlines())
        lines += [f"# {line}" for line in part.want.splitlines()]
    return ["## Example", "", "```python", *imports, "", *lines, "```", ""]


def core(page: Page) -> str:
    """The rows of the core that a call ends in."""
    names = dict.fromkeys(call.name for call in trace(page, operand(page, 0, 0), 0).calls)
    return "; ".join(f"`{name}`: {_core.rows()[name].doc.rstrip('.')}" for name in names)


def facts(page: Page, hrefs: dict[str, str]) -> Iterator[tuple[str, str]]:
    """The labelled lines of a page."""
    parts = {
        k: linked(" ".join(v.split()), page.name, hrefs).rstrip(".") for k, v in page.parts.items()
    }
    yield "Collective", parts["Collective"]
    yield "Shapes", parts["Shapes"]
    if is_operation(page):
        if OPERANDS & set(page.parameters):
            yield "Dtypes", dtypes_by_op(page) if "op" in page.parameters else dtypes(page)
            yield "vmap", batching(page)
        yield "Core", core(page) or "none"
    yield "Raises", parts["Raises"]
    more = "" if parts["Adjoint"] == "none" else "; see [gradients](../gradients.md)"
    yield "Adjoint", parts["Adjoint"] + more
    yield "Source", parts["Source"]


def written(page: Page, hrefs: dict[str, str]) -> str:
    """The text of a page."""
    lines = [f"# {page.name}", "", "```python", signature(page), "```", ""]
    lines += [linked(page.summary, page.name, hrefs), ""]
    lines += [linked(page.text, page.name, hrefs), ""] if page.text else []
    lines += ["| | |", "|---|---|"]
    lines += [f"| **{label}** | {text} |" for label, text in facts(page, hrefs)]
    lines += ["", *example(page), *(costs(page) if is_operation(page) else [])]
    return "\n".join(lines) + "\n[All functions](README.md)\n"


LEGEND = """\
## Dtypes

Where a page says *all*:

{dtypes}

Where a page of a transform or a solver says *bool, integers*: they become floating-point numbers
as in `jax.numpy`, those of 64 bits in double precision, others in single precision. LAND, LOR and
LXOR give 0 or 1, also of one rank.

## Cost

Tables say what a rank has to wait for and to fetch: **fences**, at which all ranks meet; the
**pieces** that come from other ranks, and their bytes, whatever way they come; what it **sends**,
where only two ranks are concerned; and **work** memory besides operands and results, without
staging of up to 256 KiB, and without what the kernels of a transform need, which depends on the
machine. Ranks are *threads* of one process, processes that share the memory of a node (*shared
memory*), or processes that exchange *messages* of MPI. The steps of a plan are explained in
[architecture](../architecture.md#steps).
"""


def index(pages: dict[str, Page], hrefs: dict[str, str]) -> str:
    """The index page of all others, by family."""
    lines = ["# Functions", "", "Written by `make docs` from docstrings and plans.", ""]
    lines += [f"[Objects, exceptions, constants]({reference_objects.FILE})", ""]
    left = dict(pages)
    for family, modules in FAMILIES.items():
        lines += [f"## {family}", "", "| function | | adjoint |", "|---|---|---|"]
        for page in [p for p in left.values() if p.function.__module__ in modules]:
            adjoint = " ".join(page.parts["Adjoint"].split(";")[0].split())
            texts = [linked(text.rstrip("."), page.name, hrefs) for text in (page.summary, adjoint)]
            lines.append(f"| [`{page.name}`]({page.file}) | {' | '.join(texts)} |")
            del left[page.name]
        lines.append("")
    if left:
        raise SystemExit(f"in no family of the index: {', '.join(left)}")
    return "\n".join(lines) + "\n" + LEGEND.format(dtypes="\n".join(kinds()))


def everything() -> dict[str, str]:
    """Names and texts of all pages."""
    pages = {name: read(name, function) for name, function in public()}
    hrefs = {name: page.file for name, page in pages.items()} | reference_objects.hrefs()
    texts = {page.file: written(page, hrefs) for page in pages.values()}
    texts[reference_objects.FILE] = reference_objects.written(lambda t: linked(t, "", hrefs))
    return texts | {"README.md": index(pages, hrefs)}


def stale(folder: Path, texts: dict[str, str]) -> list[str]:
    """Names of files in a folder that are missing, differ, or do not belong there."""
    there = {path.name: path.read_text() for path in folder.glob("*.md")}
    return sorted(name for name in texts | there if texts.get(name) != there.get(name))


def write(folder: Path, texts: dict[str, str], names: list[str]) -> None:
    """Give these files the texts that they should have."""
    folder.mkdir(exist_ok=True)
    for name in names:
        if name in texts:
            (folder / name).write_text(texts[name])
        else:
            (folder / name).unlink()


def main() -> int:
    jax.config.update("jax_num_cpu_devices", N_RANKS)
    jax.config.update("jax_platforms", "cpu")
    jax.config.update("jax_enable_x64", True)
    _blas.require()  # needed before plans of dense operations
    folders = {PAGES: everything(), reference_headers.PAGES: reference_headers.everything()}
    is_good = True
    for folder, texts in folders.items():
        names, where = stale(folder, texts), f"docs/{folder.name}"
        if sys.argv[1:] == ["--check"]:
            print("\n".join(f"{where}/{name} is not up to date: make docs" for name in names))
            is_good = is_good and not names
        else:
            write(folder, texts, names)
            print(f"{where}: {len(texts)} pages, {len(names)} of them changed")
    return 0 if is_good else 1


if __name__ == "__main__":
    sys.exit(main())
