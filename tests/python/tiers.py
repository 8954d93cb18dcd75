"""The tests that a quick run leaves out: PLAIT_TEST_QUICK=1, which programs in C know too.

A test marked `long` shows for other numbers, sizes, dtypes or ranks what a shorter test shows, or
covers what is seldom looked at. `long(keep=N)` applies to all its parameter sets but N. Those N
cover as many values of each parameter as they can.
"""

import collections
import os

import pytest

IS_QUICK = os.environ.get("PLAIT_TEST_QUICK", "0") != "0"
left_out: list[pytest.Item] = []


def _values(item):
    """The values of a test's parameters, each with the parameter's name."""
    return {(name, repr(value)) for name, value in item.callspec.params.items()}


def _kept(sets, n):
    """N of a test's parameter sets; among equally good sets the last: later sets are harder."""
    kept, seen = [], set()
    while sets and len(kept) < n:
        best = max(reversed(sets), key=lambda item: len(_values(item) - seen))
        kept.append(best)
        seen |= _values(best)
        sets = [item for item in sets if item is not best]
    return kept


def leave_out_long(config, items):
    """Remove long tests from `items`, in a quick run."""
    sets = collections.defaultdict(list)
    for item in items if IS_QUICK else ():
        if item.get_closest_marker("long"):
            sets[item.nodeid.partition("[")[0]].append(item)
    for group in sets.values():
        kept = _kept(group, group[0].get_closest_marker("long").kwargs.get("keep", 0))
        left_out.extend(item for item in group if item not in kept)
    config.hook.pytest_deselected(items=left_out)
    items[:] = [item for item in items if item not in set(left_out)]
