"""Which versions of JAX plait takes, which it was tested with, and what to say of others."""

import re

# As pyproject.toml has it; JAX's private names may change at any time.
SPEC = "jax>=0.8.1,<0.13"
OLDEST, NEWEST = "0.8.1", "0.12.0.1"  # that the tests have run with


def numbers(version: str) -> tuple[int, ...]:
    """(0, 12, 0, 1) of 0.12.0.1, to be compared."""
    return tuple(int(n) for n in re.findall(r"\d+", version.partition("+")[0]))


def is_tested(jax: str) -> bool:
    """Whether this version of JAX is none that is older or newer than those."""
    return numbers(OLDEST) <= numbers(jax) <= numbers(NEWEST)


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
