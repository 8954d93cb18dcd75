"""Which tests a quick run leaves out: PLAIT_TEST_QUICK=1, which programs in C know too.

A test marked `long` shows for other numbers, sizes, dtypes or ranks what a shorter one shows, or
is looked at seldom; `long(keep=N)` has that of all its parameter sets but N. Those N take in as
many values of each parameter as they can.
"""

import collections
import os

import pytest

IS_QUICK = os.environ.get("PLAIT_TEST_QUICK", "0") != "0"
left_out: list[pytest.Item] = []


def _values(item):
    """The values of its parameters, each with its parameter."""
    return {(name, repr(value)) for name, value in item.callspec.params.items()}


def _kept(sets, n):
    """So many of a test's parameter sets; of equally good ones the last: they get harder."""
    kept, seen = [], set()
    while sets and len(kept) < n:
        best = max(reversed(sets), key=lambda item: len(_values(item) - seen))
        kept.append(best)
        seen |= _values(best)
        sets = [item for item in sets if item is not best]
    return kept


def leave_out_long(config, items):
    """Takes long tests from `items`, in a quick run."""
    sets = collections.defaultdict(list)
    for item in items if IS_QUICK else ():
        if item.get_closest_marker("long"):
            sets[item.nodeid.partition("[")[0]].append(item)
    for group in sets.values():
        kept = _kept(group, group[0].get_closest_marker("long").kwargs.get("keep", 0))
        left_out.extend(item for item in group if item not in kept)
    config.hook.pytest_deselected(items=left_out)
    items[:] = [item for item in items if item not in set(left_out)]
