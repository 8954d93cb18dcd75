"""The page of what is public but no function: docs/operations/objects.md, for make_reference.py.

Texts are docstrings. `linked` turns names in backquotes into links, as on other pages.
"""

import inspect
import re
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import plait
from jax.errors import JaxRuntimeError

FILE = "objects.md"
LABELS = r"\s+(Collective|Shapes|Raises|Adjoint|Source):"
BASES = {np.linalg.LinAlgError: "numpy.linalg.LinAlgError"}
INTERNAL = {"id"}  # of a communicator: a number of the core

HEAD = """\
# Objects, exceptions, constants

Written by `make docs` from docstrings.
"""

EXCEPTIONS = """\
## Exceptions

All are subclasses of `plait.Error`, itself a `jax.errors.JaxRuntimeError` and so a RuntimeError.
Wrong arguments that can be judged before anything runs are Python's own TypeError and ValueError.
From a program of `jax.jit` come `JaxRuntimeError`s with the same text. `errors` gives them their
names; `block` does so for what fails while it waits, not for what the call itself has raised.

| exception | also | |
|---|---|---|"""

CONSTANTS = """\
## Constants

| | |
|---|---|
| {reductions} | reductions, for `op=`; `MPI.SUM` and its like of mpi4py do as well |
| `plait.ANY_SOURCE`, `plait.ANY_TAG` | for `recv` and `sendrecv`: whoever sends, whatever tag |
| `plait.PROC_NULL` | the neighbour beyond the edge: nothing is sent, the template received |
"""


def things() -> Iterator[tuple[str, Any]]:
    """Names and values of the interface, except functions and modules."""
    for module in (plait, plait.fft, plait.halo, plait.linalg):
        for name in module.__all__:
            thing = getattr(module, name)
            if not inspect.isfunction(thing) and not inspect.ismodule(thing):
                yield f"{module.__name__}.{name}", thing


def is_exception(thing: Any) -> bool:
    """Whether it is a class of exceptions."""
    return inspect.isclass(thing) and issubclass(thing, Exception)


def described() -> dict[str, type]:
    """The classes with a section of their own, by the names that users know."""
    found = {name: x for name, x in things() if inspect.isclass(x) and not is_exception(x)}
    return found | {"plait.config": type(plait.config)}


def exceptions() -> dict[str, type]:
    """The exceptions of plait."""
    return {name: x for name, x in things() if is_exception(x)}


def hrefs() -> dict[str, str]:
    """Where each name is described."""
    sections = {name: f"{FILE}#{name.lower().replace('.', '')}" for name in described()}
    return sections | dict.fromkeys(exceptions(), f"{FILE}#exceptions")


def members(kind: type) -> Iterator[tuple[str, str]]:
    """Properties and methods as users write them, and their docstrings."""
    for name, member in vars(kind).items():
        is_function = inspect.isfunction(member)
        if not name.startswith("_") and name not in INTERNAL and inspect.getdoc(member):
            if is_function:
                yield name + call(member, 1), inspect.getdoc(member)
            elif isinstance(member, property):
                yield name, inspect.getdoc(member)


def call(function: Callable, n_left_out: int = 0) -> str:
    """The parameters of a function, without types and without the first ones, such as self."""
    signature = inspect.signature(function)
    bare = [p.replace(annotation=p.empty) for p in signature.parameters.values()][n_left_out:]
    return str(signature.replace(parameters=bare, return_annotation=signature.empty))


def section(name: str, kind: type, linked: Callable[[str], str]) -> Iterator[str]:
    """A class: its text, its fields, its members, its example."""
    text, _, example = inspect.cleandoc(kind.__doc__ or "").partition("Example:")
    text = re.sub(LABELS, r"\n* **\1**:", text.strip()).replace("\n* ", "\n\n* ", 1)
    yield from (f"## {name}", "", linked(text), "")
    fields = getattr(kind, "_fields", ())
    if fields:
        yield from (f"A named tuple: {', '.join(f'`{field}`' for field in fields)}.", "")
    rows = [f"| `{way}` | {linked(' '.join(doc.split()))} |" for way, doc in members(kind)]
    if rows and not fields:
        yield from ("| | |", "|---|---|", *rows, "")
    if example:
        yield from ("```python", inspect.cleandoc(example), "", "```", "")


def written(linked: Callable[[str], str]) -> str:
    """The text of the page."""
    lines = [HEAD]
    for name, kind in described().items():
        lines += section(name, kind, linked)
    lines.append(linked(EXCEPTIONS))
    for name, kind in exceptions().items():
        bases = [base for base in kind.__bases__ if base not in (plait.Error, JaxRuntimeError)]
        also = ", ".join(BASES.get(base, base.__name__) for base in bases)
        lines.append(f"| `{name}` | {also} | {linked(' '.join(inspect.getdoc(kind).split()))} |")
    names = [f"`{name}`" for name, x in things() if isinstance(x, type(plait.SUM))]
    lines += ["", linked(CONSTANTS.format(reductions=", ".join(names)))]
    return "\n".join(lines) + "\n[All functions](README.md)\n"
