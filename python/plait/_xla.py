"""What XLA must be told for programs that communicate.

**A pass that ends the process.** In jaxlib 0.11.2 and 0.12 (0.11.0 is without the fault, the option
harmless there) *nullary-function-wrap-inliner* inlines functions whose only operand is a token, and
makes the token a control predecessor of all that was in them. HloCSE then meets a constant that the
caller has as well, removes it, and fails its own check ("cannot remove instruction"), which is an
abort. Such functions are a `jax.jit` in a program, or a `jax.shard_map`, that communicates and has
no operands. Without the pass they are inlined like all others.

**Threads for all devices.** The CPU devices of a process share a pool of threads, as many as there
are cores, or devices. A device has at most 32 computations under way; where a program calls one
more, a thread of the pool waits until one of them is over, for each device one. If those wait for
operands, and one of these for an operation whose other ranks are devices without a thread, nothing
goes on: a loop of steps that looks at no result has stood still after 33. What is called when its
operands are there has its threads already. (More threads would do as well, and cost all programs
over several devices 50 us and more.)
"""

import functools
import os
from typing import Any

import jax

PASS, OPTION = "nullary-function-wrap-inliner", "xla_disable_hlo_passes"
has_pass = jax.__version_info__ >= (0, 11)

SIZE = "NPROC"  # of the pool, for XLA and whoever starts its processes


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


@functools.cache
def is_crowded() -> bool:
    """Whether there are too few threads for all CPU devices of this process; devices are made."""
    cpus = [device for device in jax.local_devices() if device.platform == "cpu"]
    given = os.environ.get(SIZE, "")
    n_threads = int(given) if given.isdigit() else len(os.sched_getaffinity(0))
    # one that waits for each device, one on which each goes on, and two for others
    return 1 < len(cpus) and n_threads < 2 * len(cpus) + 2
