"""Pairwise selections: a few combinations in which every pair of values occurs. Pure.

For matrices of features: most defects need two values, so a selection with every pair finds them
at a fraction of the cost of all combinations.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from itertools import combinations, product
from typing import TypeVar

T = TypeVar("T", bound=Hashable)

#: Two positions in a combination, and their values.
Pair = tuple[int, Hashable, int, Hashable]


def all_combinations(*axes: Sequence[T]) -> list[tuple[T, ...]]:
    """The whole matrix, in the order of the axes."""
    return list(product(*axes))


def pairs_of(combination: Sequence[Hashable]) -> set[Pair]:
    """Every pair of values in one combination."""
    return {(i, a, j, b) for (i, a), (j, b) in combinations(enumerate(combination), 2)}


def pairwise(*axes: Sequence[T]) -> list[tuple[T, ...]]:
    """Combinations in which every pair of values of two axes occurs at least once. The result is
    deterministic: each step takes the combination with the most new pairs, the first of equals."""
    matrix = all_combinations(*axes)
    if len(axes) < 2:
        return matrix
    pairs = {one: pairs_of(one) for one in matrix}
    missing = set[Pair]().union(*pairs.values())
    chosen: list[tuple[T, ...]] = []
    while missing:
        best = max(matrix, key=lambda one: len(pairs[one] & missing))
        chosen.append(best)
        missing -= pairs[best]
    return chosen
