"""The generator of pairwise selections."""

from __future__ import annotations

from itertools import combinations, product

import pytest

from skep.testing.grounds.pairwise import all_combinations, pairs_of, pairwise

AXES = (tuple("abcde"), tuple("fghij"), tuple("klmn"), tuple("op"))


@pytest.mark.parametrize("axes", [AXES, (tuple("ab"), tuple("cde")), (tuple("abc"),) * 3])
def test_every_pair_of_values_occurs(axes: tuple[tuple[str, ...], ...]) -> None:
    chosen = pairwise(*axes)
    wanted = {
        (i, a, j, b)
        for (i, first), (j, second) in combinations(enumerate(axes), 2)
        for a, b in product(first, second)
    }
    assert set().union(*(pairs_of(one) for one in chosen)) == wanted
    assert len(set(chosen)) == len(chosen)
    assert chosen == pairwise(*axes)


def test_a_selection_is_much_smaller_than_the_matrix() -> None:
    assert len(all_combinations(*AXES)) == 200
    assert 25 <= len(pairwise(*AXES)) <= 32
    assert pairwise(tuple("abc")) == [("a",), ("b",), ("c",)]
    assert pairwise() == [()]
