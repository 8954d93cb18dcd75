"""What XLA must be told for programs that communicate.

**A pass that ends the process.** In jaxlib 0.11.2 and 0.12, *nullary-function-wrap-inliner* inlines
functions whose only operand is a token, and makes the token a control predecessor of all their
instructions. (0.11.0 does not have the fault; there the option is harmless.) HloCSE then meets a
constant that the caller has as well, removes it, and fails its own check ("cannot remove
instruction"), which is an abort. Such a function is a `jax.jit` in a program, or a `jax.shard_map`,
that communicates and has no operands. Without the pass it is inlined like all others.

**Threads for all devices.** The CPU devices of a process share a pool of as many threads as there
are cores, or devices. A device has at most 32 computations under way. If a program calls one more,
a thread of the pool waits until one of them is over, one thread for each device. These threads may
wait for operands that depend on an operation whose other ranks are devices without a thread: then
nothing goes on. A loop of steps that looks at no result has stood still after 33 steps. A call
whose operands are ready has its threads already, unless it is one of 33 that do not wait for each
other. So a thread waits for every eighth call. (More threads would do as well, but cost all
programs over several devices 50 us and more.)

On one device each Python thread has a program under way, which takes a thread of the pool as well,
unless its operands are ready and it is so small that XLA runs it in its caller's thread. With fewer
threads than callers, ranks may give theirs to different communicators' operations, for ever.
"""

import functools
import os
from typing import Any

import jax

PASS, OPTION = "nullary-function-wrap-inliner", "xla_disable_hlo_passes"
has_pass = jax.__version_info__ >= (0, 11)

SIZE = "NPROC"  # size of the pool, for XLA and for whoever starts its processes


def set_flags() -> None:
    """Sets flags for all programs of the process, when plait is imported.

    XLA reads the variable once, when JAX finds its devices.
    """
    flags = os.environ.get("XLA_FLAGS", "")
    if has_pass and PASS not in flags:
        os.environ["XLA_FLAGS"] = f"{flags} --{OPTION}={PASS}".strip()


def with_option(jit_options: dict[str, Any]) -> dict[str, Any]:
    """jax.jit's options with the flag for one program, whenever plait was imported."""
    if not has_pass:
        return jit_options
    given = dict(jit_options.get("compiler_options") or {})
    given[OPTION] = ",".join(filter(None, (given.get(OPTION), PASS)))
    return jit_options | {"compiler_options": given}


_n_callers = 0
is_crowded = False  # too few threads for what may be under way on CPU devices


def note_callers(n: int) -> None:
    """Notes how many Python threads call operations; devices exist by then."""
    global is_crowded, _n_callers
    _n_callers = n
    # a waiting thread for each device, a working thread for each, and two for others
    k = n_devices()
    is_crowded = n_threads() < (2 * k + 2 if k > 1 else n)


def advice() -> str:
    """A hint for a rank that has waited in vain, if more threads would have helped; or ""."""
    is_async = jax.config.read("jax_cpu_enable_async_dispatch")
    if not is_async or n_devices() != 1 or n_threads() >= _n_callers:
        return ""
    return (
        f"{_n_callers} threads of this process have called operations, and XLA runs programs "
        f"with {n_threads()}: set {SIZE}={_n_callers} in the environment, see docs/tuning.md"
    )


@functools.cache
def n_threads() -> int:
    """Threads of XLA's pool for CPU devices, unless there are more devices."""
    given = os.environ.get(SIZE, "")
    return int(given) if given.isdigit() else len(os.sched_getaffinity(0))


@functools.cache
def n_devices() -> int:
    """CPU devices of this process."""
    return sum(device.platform == "cpu" for device in jax.local_devices())
