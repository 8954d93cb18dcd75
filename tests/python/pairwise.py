"""Parametrizations with many parameters: not every combination, but every pair of values."""

import itertools


def pairwise(*parameters):
    """Rows of values in which every pair of values of two parameters occurs.

    Each row is the first of all combinations with the most pairs that are still missing.
    """
    columns = range(len(parameters))
    every = list(itertools.product(*map(range, map(len, parameters))))
    missing = {pair for row in every for pair in _pairs(row, columns)}
    rows = []
    while missing:
        best = max(every, key=lambda row: len(missing.intersection(_pairs(row, columns))))
        missing.difference_update(_pairs(best, columns))
        rows.append(tuple(values[i] for values, i in zip(parameters, best, strict=True)))
    return rows


def _pairs(row, columns):
    return [(i, row[i], j, row[j]) for i, j in itertools.combinations(columns, 2)]
