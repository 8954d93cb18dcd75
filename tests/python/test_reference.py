"""The pages in docs/operations agree with docstrings and plans, and no page is missing."""

import ast
import importlib.util
import inspect
import pathlib
import re
import subprocess
import sys

import jax
import jax.numpy as jnp
import plait
import pytest
from plait import _core, _describe

ROOT = pathlib.Path(__file__).parents[2]
TOOL = ROOT / "tools" / "make_reference.py"
PAGES = ROOT / "docs" / "operations"


def load():
    """The tool as a module."""
    sys.path.append(str(TOOL.parent))
    spec = importlib.util.spec_from_file_location("make_reference", TOOL)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # its dataclasses look the module up
    spec.loader.exec_module(module)
    return module


TOOLS = load()
PUBLIC = {
    f"{module.__name__}.{name}".removeprefix("plait."): getattr(module, name)
    for module in (plait, plait.fft, plait.halo, plait.linalg)
    for name in module.__all__
    if inspect.isroutine(getattr(module, name))
}


# ---- pages ---------------------------------------------------------------------------------------


@pytest.mark.long
def test_pages_are_up_to_date():
    done = subprocess.run(
        [sys.executable, TOOL, "--check"], capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_nothing_public_is_left_out():
    assert {"plait." + name for name in PUBLIC} == {name for name, _ in TOOLS.public()}
    assert {"allreduce", "jit", "fft.pfft3d", "halo.reduce"} < set(PUBLIC)
    things = [getattr(plait, name) for name in plait.__all__]
    left = [x for x in things if callable(x) and x not in PUBLIC.values()]
    assert all(isinstance(x, type | type(plait.SUM)) for x in left)
    others, text = dict(TOOLS.reference_objects.things()), (PAGES / "objects.md").read_text()
    assert {"plait.Comm", "plait.Error", "plait.SUM", "plait.linalg.LU"} < set(others)
    assert not [name for name in others if not re.search(rf"(## |`){name}\b", text)]


@pytest.mark.parametrize("name", PUBLIC)
def test_every_function_has_a_page_with_all_parts(name):
    text = (PAGES / f"{name}.md").read_text()
    assert f"# plait.{name}\n" in text and f"]({name}.md)" in (PAGES / "README.md").read_text()
    labels = ["Collective", "Shapes", "Raises", "Adjoint", "Source"]
    has_ranks = bool({"comm", "mesh"} & set(inspect.signature(PUBLIC[name]).parameters))
    labels += ["Core"] if has_ranks else []
    labels += ["Dtypes", "vmap"] if has_ranks and name != "barrier" else []
    for label in labels:
        assert re.search(rf"^\| \*\*{label}\*\* \| .*\w.* \|$", text, re.MULTILINE), label
    assert ("## Cost" in text) == has_ranks and "## Example" in text


def test_stale_pages_are_found(tmp_path):
    texts = {"a.md": "one\n", "b.md": "two\n"}
    assert TOOLS.stale(tmp_path, texts) == ["a.md", "b.md"]
    TOOLS.write(tmp_path, texts, ["a.md", "b.md"])
    assert TOOLS.stale(tmp_path, texts) == []
    (tmp_path / "b.md").write_text("two\n\n")
    (tmp_path / "c.md").write_text("of no function\n")
    assert TOOLS.stale(tmp_path, texts) == ["b.md", "c.md"]
    TOOLS.write(tmp_path, texts, ["b.md", "c.md"])
    assert TOOLS.stale(tmp_path, texts) == []


@pytest.mark.parametrize(
    "label", ["Collective", "Shapes", "Raises", "Adjoint", "Source", "Example"]
)
def test_missing_part_is_found(label):
    def function():
        pass

    function.__doc__ = plait.allgather.__doc__.replace(f"{label}:", "")
    with pytest.raises(SystemExit, match=f"plait.allgather: the docstring lacks {label}"):
        TOOLS.read("plait.allgather", function)


def test_public_names_are_there_for_editors_that_run_nothing():
    """Editors call names unknown that are computed, or imported under other names."""
    tree = ast.parse((ROOT / "python" / "plait" / "_public.py").read_text())
    imported = {
        alias.name
        for node in tree.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
        if alias.asname == alias.name
    }
    [listed] = [node.value for node in tree.body if isinstance(node, ast.Assign)]
    assert set(ast.literal_eval(listed)) == set(plait.__all__) <= imported
    assert [getattr(plait, name).name for name in _core.reductions()] == list(_core.reductions())


# ---- plans in words ------------------------------------------------------------------------------


def numbers(plan):
    """Messages, bytes and work bytes; checks that the first line of the text states them."""
    found = (plan.messages, plan.n_bytes, plan.work_bytes)
    first, n = plan.text.splitlines()[0], len(re.findall(r"^ +\d+  fence", plan.text, re.MULTILINE))
    assert ": {} messages, {} bytes, work {} bytes".format(*found) in first
    assert plan.fences == n
    return found


@pytest.mark.parametrize("way", _describe.WAYS)
@pytest.mark.parametrize("n_ranks", [1, 2, 3, 7])
@pytest.mark.parametrize("n", [0, 5, 1 << 18])
def test_movements_fetch_what_the_others_have(way, n_ranks, n):
    part, whole = ("float64", (n,)), ("float64", (n_ranks, n))
    cases = {"allgather": [part, whole], "alltoall": [whole, whole]}
    n_others = (n_ranks - 1) * (n > 0)
    for name, arrays in cases.items():
        for rank in range(n_ranks):
            plan = _describe.describe(name, {"counts": ()}, n_ranks, rank, way, arrays)
            assert f"rank {rank} of {n_ranks} by " in plan.text
            assert numbers(plan) == (n_others, n_others * n * 8, 0), plan.text


def test_lists_reach_the_plan():
    counts = [4, 0, 3]
    for rank in range(3):
        arrays = [("int32", (counts[rank], 2)), ("int32", (7, 2))]
        plan = _describe.describe("allgather", {"counts": counts}, 3, rank, "messages", arrays)
        others = [c for r, c in enumerate(counts) if r != rank and c > 0]
        assert numbers(plan)[:2] == (len(others), sum(others) * 2 * 4), plan.text


@pytest.mark.long
def test_long_plans_are_whole():
    n = 5000
    arrays = [("int32", (n,)), ("int32", (n,))]
    plan = _describe.describe("alltoall", {"counts": (1,) * n * n}, n, 1, "threads", arrays)
    assert plan.messages == n - 1
    assert plan.text.endswith("\n")


def test_wrong_questions_are_refused():
    x = ("float32", (8,))
    params = {"reduce": plait.SUM.code, "replicated": 0}
    plan = _describe.describe("allreduce", params, 4, 0, "threads", [x, x])
    assert "allreduce(float32[8], SUM)" in plan.text
    with pytest.raises(ValueError, match="1 arrays; expected 2"):
        _describe.describe("allreduce", params, 4, 0, "threads", [x])
    with pytest.raises(ValueError, match="rank 4 is not one of 4"):
        _describe.describe("allreduce", params, 4, 4, "threads", [x, x])
    with pytest.raises(KeyError):
        _describe.describe("allreduce", {}, 4, 0, "threads", [x, x])
    with pytest.raises(ValueError, match="SUM"):
        _describe.describe("allreduce", params, 4, 0, "threads", [("bool", (8,))] * 2)


def test_ranks_of_the_reference_are_those_of_the_operation():
    page = TOOLS.read("plait.gather", plait.gather)
    x = TOOLS.operand(page, 0, 0)
    assert x.dtype == jnp.float32
    on_root, elsewhere = (TOOLS.trace(page, x, rank) for rank in range(2))
    assert (on_root.results, elsewhere.results) == ("float32[4, 8]", "float32[8]")
    assert [call.name for call in on_root.calls] == ["gather"]


def test_plan_of_the_architecture_page_is_the_one_that_is_made(monkeypatch):
    line = jax.make_mesh((2,), ("x",), axis_types=(jax.sharding.AxisType.Auto,))
    monkeypatch.setattr(TOOLS, "N_RANKS", 2)
    monkeypatch.setattr(TOOLS, "mesh", lambda: line)
    x = jax.ShapeDtypeStruct((256, 256, 256), jnp.complex128)
    traced = TOOLS.trace(TOOLS.read("plait.fft.pfft3d", plait.fft.pfft3d), x, 0)
    text = (ROOT / "docs" / "architecture.md").read_text()
    [shown] = re.findall(r"^```\n(fft complex128.*?)^```$", text, re.DOTALL | re.MULTILINE)
    made = "".join(TOOLS.portable(TOOLS.describe(c, 0, "threads").text) for c in traced.calls)
    assert TOOLS.portable(shown) == made


def test_observing_page_shows_what_explain_prints(capsys):
    text = (ROOT / "docs" / "observing.md").read_text()
    part = text[text.index("## Before it runs") : text.index("## The line in your program")]
    program, table, plan = re.findall(r"^```\w*\n(.*?)^```$", part, re.DOTALL | re.MULTILINE)
    names = {}
    exec(compile(program, "step.py", "exec"), names)
    assert capsys.readouterr().out == table
    found = plait.explain(jax.grad(names["loss"]), names["x"])
    assert TOOLS.portable(found.calls[0].plan) == TOOLS.portable(plan)
