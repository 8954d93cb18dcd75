"""Which JAX versions plait accepts, which it was tested with, and what to say about others."""

import re

# As in pyproject.toml; JAX's private names may change at any time.
SPEC = "jax>=0.8.1,<0.13"
OLDEST, NEWEST = "0.8.1", "0.12.0.1"  # versions that the tests have run with


def numbers(version: str) -> tuple[int, ...]:
    """(0, 12, 0, 1) for 0.12.0.1, for comparisons."""
    return tuple(int(n) for n in re.findall(r"\d+", version.partition("+")[0]))


def is_tested(jax: str) -> bool:
    """Whether this version of JAX is neither older nor newer than the tested ones."""
    return numbers(OLDEST) <= numbers(jax) <= numbers(NEWEST)


def note(error: Exception) -> None:
    """Adds a note to an error of an import, if JAX's version may have caused it."""
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
