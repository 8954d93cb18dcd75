"""A pass of XLA's that ends the process, and how programs are compiled without it.

In jaxlib 0.11.2 and 0.12 (0.11.0 is without the fault, the option harmless there)
*nullary-function-wrap-inliner* inlines functions whose only operand is a token, and makes the token
a control predecessor of all that was in them. HloCSE then meets a constant that the caller has as
well, removes it, and fails its own check ("cannot remove instruction"), which is an abort. Such
functions are a `jax.jit` in a program, or a `jax.shard_map`, that communicates and has no operands.
Without the pass they are inlined like all others.
"""

import os
from typing import Any

import jax

PASS, OPTION = "nullary-function-wrap-inliner", "xla_disable_hlo_passes"
has_pass = jax.__version_info__ >= (0, 11)


def set_flags() -> None:
    """For all programs of the process, when plait is imported.

    XLA reads the variable once, when JAX finds its devices.
    """
    flags = os.environ.get("XLA_FLAGS", "")
    if has_pass and PASS not in flags:
        os.environ["XLA_FLAGS"] = f"{flags} --{OPTION}={PASS}".strip()


def with_option(jit_options: dict[str, Any]) -> dict[str, Any]:
    """Options of jax.jit that say it for one program, whenever plait was imported."""
    if not has_pass:
        return jit_options
    given = dict(jit_options.get("compiler_options") or {})
    given[OPTION] = ",".join(filter(None, (given.get(OPTION), PASS)))
    return jit_options | {"compiler_options": given}
