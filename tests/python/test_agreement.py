"""The core's list, the Python functions, the oracles and the docstrings agree."""

import doctest
import importlib
import pathlib
import re

import oracle
import plait
import pytest
from plait import _core, _ops, _platforms

SOURCE = pathlib.Path(plait.__file__).parent
# The public Python function of each row of the core.
PUBLIC = {
    "allgather": plait.allgather,
    "allreduce": plait.allreduce,
    "alltoall": plait.alltoall,
    "barrier": plait.barrier,
    "bcast": plait.bcast,
    "exchange": plait.sendrecv,  # the derivative of sendrecv, and of recv from any source or tag
    "fft": plait.fft.pfft3d,
    "gather": plait.gather,
    "gemm": plait.linalg.matmul,
    "geqrf": plait.linalg.qr,
    "getrf": plait.linalg.lu,
    "halo_exchange": plait.halo.exchange,
    "halo_reduce": plait.halo.reduce,
    "heevd": plait.linalg.eigh,
    "ormqr": plait.linalg.qr,
    "potrf": plait.linalg.cholesky,
    "potri": plait.linalg.potri,
    "potrs": plait.linalg.potrs,
    "recv": plait.recv,
    "redistribute": plait.redistribute,
    "reduce": plait.reduce,
    "reduce_scatter": plait.reduce_scatter,
    "route": plait.permute,
    "scan": plait.scan,
    "scatter": plait.scatter,
    "send": plait.send,
    "sendrecv": plait.sendrecv,
    "trsm": plait.linalg.solve,
    "tsqr": plait.linalg.qr,
}
# Rows with LAPACK's names use the oracles of their public functions.
ORACLE = {
    name: PUBLIC[name].__name__
    for name in ("gemm", "geqrf", "getrf", "heevd", "ormqr", "potrf", "trsm", "tsqr")
} | {"potri": "inv", "potrs": "solve"}
ONLY_PYTHON = {"pvary"}  # communicates nothing; only its adjoint does


@pytest.mark.parametrize("name", list(_core.rows()))
def test_every_row_has_function_oracle_and_rules(name):
    assert name in PUBLIC
    assert hasattr(oracle, ORACLE.get(name, name))
    row = _core.rows()[name]
    assert name in _ops.operations()
    for half in ("", "start_"):
        for symbol in _platforms.symbols(row, half).values():
            assert hasattr(_core.lib, symbol)
    assert row.adjoint is None or row.adjoint in _core.rows()
    assert row.doc.endswith(".") and row.model in ("rank", "mesh")


def test_nothing_has_more():
    assert set(PUBLIC) == set(_core.rows()) == set(_ops.operations()) - ONLY_PYTHON


MODULES = [plait.fft, plait.halo, plait.linalg]


@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.__name__)
def test_completion_shows_what_is_public(module):
    assert [name for name in dir(module) if name[0] != "_"] == sorted(module.__all__)


def public_functions():
    for module in [plait, *MODULES]:
        for name in module.__all__:
            thing = getattr(module, name)
            if callable(thing) and not isinstance(thing, type):
                yield f"{module.__name__}.{name}", thing


@pytest.mark.parametrize("name,function", list(public_functions()))
def test_docstring_has_every_line(name, function):
    text = function.__doc__ or ""
    if isinstance(function, type(plait.SUM)):
        return
    for word in ("Collective:", "Shapes:", "Raises:", "Adjoint:", "Source:", "Example:"):
        assert word in text, f"{name} lacks {word}"
    for path, oracle_name in re.findall(r"``(tests/\S+)::(\w+)``", text):
        assert path == "tests/python/oracle.py" and hasattr(oracle, oracle_name)


@pytest.mark.parametrize("path", list(SOURCE.rglob("*.py")), ids=lambda path: path.stem)
def test_only_one_module_touches_private_jax(path):
    may = (SOURCE / "_jax.py", SOURCE / "_jax_programs.py")
    assert path in may or "jax._src" not in path.read_text()


WITH_EXAMPLES = [
    *("_comm", "_errors", "_foreign", "_move", "_neighbor", "_order", "_p2p", "_redist", "_reduce"),
    "_region",
    "_start",
    *("fft", "halo"),
    *(f"compat.jaxdecomp.{name}" for name in ("fft", "halo", "transpose", "_config", "_specs")),
    *(f"compat.jaxmg.{name}" for name in ("_columns", "_cyclic_1d", "_rows", "utils")),
]


@pytest.mark.long
@pytest.mark.parametrize("module", WITH_EXAMPLES)
def test_examples_run(module):
    found = doctest.testmod(
        importlib.import_module(f"plait.{module}"),
        optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE,
    )
    assert found.failed == 0 and found.attempted > 0


def test_sizes_of_the_source():
    for path in SOURCE.rglob("*.py"):
        assert len(path.read_text().splitlines()) <= 500, path.name
