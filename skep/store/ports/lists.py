"""The store's contract for lists with filters. The rules of `store/ports` apply.

Used by the API and by operations on everything that a filter finds. A page costs a bounded
number of rows, whatever the filter: when no index serves it, the page says how many rows were
looked at and the key to continue from, even when nothing was found yet.
"""

from __future__ import annotations

from typing import Any, Protocol

import msgspec

from skep.model.filter.checked import CheckedFilter

#: The values that a page ends with; they name one row.
Key = tuple[Any, ...]


class FoundPage(msgspec.Struct, frozen=True):
    """Rows of one page, in the order of the list."""

    #: What the resource's own port gives: `Run`, `KeptJob`, `RequestView` and so on.
    items: list[Any]
    #: There may be more after this key; None = there is no more.
    next: Key | None = None
    #: Rows that were looked at one by one; 0 = an index found all of them.
    scanned: int = 0
    #: How many rows fit; None = not asked for.
    count: int | None = None
    #: Without it, `count` is the least number.
    exact: bool = True


class FoundKeys(msgspec.Struct, frozen=True):
    """The same, with the key of each row only."""

    keys: list[Key]
    next: Key | None = None
    scanned: int = 0


class Lists(Protocol):
    """Searches in the tables of one resource."""

    async def find(
        self, wanted: CheckedFilter, after: Key | None, limit: int, *, counted: bool = False
    ) -> FoundPage:
        """The next rows after a key. Raises InvalidInput for a key of another list, and KeyError
        for a resource without a table."""

    async def keys(self, wanted: CheckedFilter, after: Key | None, limit: int) -> FoundKeys:
        """For operations on many rows. The first value of a key of `requests` is its id, of
        `jobs` its name; of `runs` the second one is its number."""
