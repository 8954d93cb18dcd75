"""Which versions of JAX plait takes, which it was tested with, and what to say of others."""

import re
import warnings

# As pyproject.toml has it; JAX's private names may change at any time.
SPEC = "jax>=0.8.1,!=0.11.2,<0.13"
OLDEST, NEWEST = "0.8.1", "0.12.0.1"  # that the tests have run with
BROKEN = {"0.11.2": "XLA ends the process where a jax.shard_map has an operand without elements"}


def numbers(version: str) -> tuple[int, ...]:
    """(0, 12, 0, 1) of 0.12.0.1, to be compared."""
    return tuple(int(n) for n in re.findall(r"\d+", version.partition("+")[0]))


def is_tested(jax: str) -> bool:
    """Whether this version of JAX is none that is older or newer than those, or known to fail."""
    return numbers(OLDEST) <= numbers(jax) <= numbers(NEWEST) and jax not in BROKEN


def warn(jax: str) -> None:
    """Of a version that is known to fail, with plait's own programs, too."""
    if jax in BROKEN:
        text = f"JAX {jax}: {BROKEN[jax]}; plait's solvers have such. pip install '{SPEC}'"
        warnings.warn(text, RuntimeWarning, stacklevel=3)


def note(error: Exception) -> None:
    """Adds to what an import raised, where it may be the fault of JAX's version."""
    import importlib.metadata  # takes as long as the rest of `plait run`

    try:
        jax = importlib.metadata.version("jax")
    except importlib.metadata.PackageNotFoundError:
        return
    if not is_tested(jax):
        error.add_note(
            f"plait was tested with JAX {OLDEST} to {NEWEST}, and this is JAX {jax}.\n"
            f"What it was tested with: pip install '{SPEC}'"
        )
