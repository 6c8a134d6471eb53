"""Headers of a response: names in any case, several values under one name. Pure.

Runs where the spider runs, for the responses that its callbacks get.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence


class Headers(Mapping[str, str]):
    """`headers["content-type"]` is the first value; `getlist` has all of them."""

    __slots__ = ("_lists", "pairs")

    def __init__(self, pairs: Sequence[tuple[str, str]] | Mapping[str, str] = ()) -> None:
        #: As they were received, in order.
        self.pairs = list(pairs.items() if isinstance(pairs, Mapping) else pairs)
        self._lists: dict[str, list[str]] = {}
        for name, value in self.pairs:
            self._lists.setdefault(name.lower(), []).append(value)

    def __getitem__(self, name: str) -> str:
        return self._lists[name.lower()][0]

    def __iter__(self) -> Iterator[str]:
        return iter(self._lists)

    def __len__(self) -> int:
        return len(self._lists)

    def getlist(self, name: str) -> list[str]:
        """Every value under that name, such as all cookies that were set."""
        return list(self._lists.get(name.lower(), ()))

    def __repr__(self) -> str:
        return f"Headers({self.pairs!r})"
