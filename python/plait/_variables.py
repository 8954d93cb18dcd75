"""The environment variables that plait reads."""

import difflib
from collections.abc import Iterable, Iterator

# Sorted by name, as in docs/observing.md.
NAMES = (
    "PLAIT_ASYNC",
    "PLAIT_BLAS",
    "PLAIT_CHECK",
    "PLAIT_CHECK_REPLICATED",
    "PLAIT_CUDA",
    "PLAIT_CUDA_CACHE",
    "PLAIT_CUDA_DIR",
    "PLAIT_DEBUG",
    "PLAIT_DENSE_BACKEND",
    "PLAIT_DIRECT",
    "PLAIT_FLIGHT",
    "PLAIT_GPU_AWARE",
    "PLAIT_HALO_COMM_BACKEND",
    "PLAIT_ISA",
    "PLAIT_LIBRARY",
    "PLAIT_LOG",
    "PLAIT_NVSHMEM_BYTES",
    "PLAIT_SHARED",
    "PLAIT_THREADS",
    "PLAIT_TIMEOUT",
    "PLAIT_TRACE",
    "PLAIT_TRANSPOSE_COMM_BACKEND",
    "PLAIT_TRANSPOSE_EXCHANGE",
    "PLAIT_TUNE_FILE",
)
# Prefixes of what ``plait run`` tells its ranks, and of what the tests read.
OURS = ("PLAIT_RUN_", "PLAIT_TEST_")


def strange(environment: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Names like plait's that it does not read, each with the name perhaps meant, or ""."""
    for name in sorted(environment):
        if name.startswith("PLAIT_") and name not in NAMES and not name.startswith(OURS):
            yield name, next(iter(difflib.get_close_matches(name, NAMES, 1, 0.8)), "")
