"""Programs in which XLA inlines a function that has a token as its only operand."""

import os
import pathlib
import subprocess
import sys

import jax
import plait
import pytest
from plait import _xla

PACKAGE = str(pathlib.Path(plait.__file__).parents[1])
LATE = "import jax, jax.numpy as jnp\njnp.ones(3) + 1\n"  # JAX has read XLA_FLAGS before plait
INNER = """
import sys
import jax, jax.numpy as jnp
from jax.sharding import AxisType, PartitionSpec as P
import plait

mesh = jax.make_mesh((2,), ("x",), axis_types=(AxisType.Auto,))
def start():
    return plait.allreduce(jnp.arange(3.0) * 3.0, plait.SUM, comm=sys.argv[2] or None)
if sys.argv[2]:
    inner = jax.shard_map(start, mesh=mesh, in_specs=(), out_specs=P(), check_vma=False)
else:
    inner = jax.jit(start)
wrap = plait.jit if sys.argv[1] == "plait" else jax.jit
print(wrap(lambda x: inner() * 3.0 + x * 3.0)(jnp.ones(3)).tolist())
"""


def run(program, *arguments, **variables):
    """The output of the program in a process of its own."""
    environment = os.environ | {"PYTHONPATH": PACKAGE, "JAX_NUM_CPU_DEVICES": "2"} | variables
    done = subprocess.run(
        [sys.executable, "-c", program, *arguments],
        env=environment,
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


@pytest.mark.long(keep=1)
@pytest.mark.parametrize("axis", ["", "x"])
@pytest.mark.parametrize(("wrap", "before"), [("plait", LATE), ("plait", ""), ("jax", "")])
def test_functions_without_operands_share_constants_with_their_callers(wrap, before, axis):
    flags = os.environ.get("XLA_FLAGS", "").replace(f"--{_xla.OPTION}={_xla.PASS}", "")
    n = 2 if axis else 1
    printed = run(before + INNER, wrap, axis, XLA_FLAGS=flags)
    assert printed == f"{[3.0, 3 + 9.0 * n, 3 + 18.0 * n]}\n"


@pytest.mark.skipif(not _xla.has_pass, reason="this jaxlib has no such pass")
def test_own_flags_and_options_stay(monkeypatch):
    monkeypatch.setenv("XLA_FLAGS", "--xla_cpu_use_fusion_emitters=false")
    for _ in range(2):
        _xla.set_flags()
        assert os.environ["XLA_FLAGS"].split() == [
            "--xla_cpu_use_fusion_emitters=false",
            f"--{_xla.OPTION}={_xla.PASS}",
        ]
    given = {"compiler_options": {_xla.OPTION: "cse", "x": 1}, "donate_argnums": 0}
    assert _xla.with_option(given) == {
        "compiler_options": {_xla.OPTION: f"cse,{_xla.PASS}", "x": 1},
        "donate_argnums": 0,
    }
    assert given["compiler_options"][_xla.OPTION] == "cse"


def test_options_of_a_user_reach_the_compiler():
    options = {"xla_backend_optimization_level": 0}
    f = plait.jit(lambda x: plait.allreduce(x, plait.SUM), compiler_options=options)
    assert f(jax.numpy.ones(2)).tolist() == [1.0, 1.0]
    with pytest.raises(Exception, match="no_such_option"):
        plait.jit(lambda x: x + 1, compiler_options={"no_such_option": 1})(jax.numpy.ones(2))
