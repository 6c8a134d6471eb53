"""Lists with filters. Implements `Lists` of `store/ports/lists.py`; run by centers, on readers.

It reads and never writes.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import sqlalchemy as sa

from skep.errors import InvalidInput
from skep.model.filter.checked import CheckedFilter
from skep.store.ports.lists import FoundKeys, FoundPage, Key
from skep.store.sql.engine.database import Database
from skep.store.sql.filters.compile import CompiledFilter, compile_filter
from skep.store.sql.filters.kept_counts import kept_count
from skep.store.sql.filters.listings import LISTS, SqlList
from skep.store.sql.filters.requests import run_numbers
from skep.store.sql.filters.search import BUDGET, Count, Page, count, search
from skep.store.sql.filters.spans import id_span

#: Rows of one call that are decided in memory.
MEMORY_BUDGET = 4000
#: Seconds after which a search row by row ends its page, so that a list answers soon.
SECONDS = 0.04


class SqlLists:
    """Reads the tables of every resource in `LISTS`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def find(
        self, wanted: CheckedFilter, after: Key | None, limit: int, *, counted: bool = False
    ) -> FoundPage:
        which = LISTS[wanted.resource]
        key = _checked(which, after)

        def work(connection: sa.Connection) -> FoundPage:
            compiled = self._compiled(connection, wanted)
            is_late = _deadline()
            page = search(
                connection, which.listing, compiled, key, limit, _budget(compiled), is_late
            )
            items = _items(connection, which, page)
            if not counted:
                return FoundPage(items, page.next, page.scanned)
            n = _count(connection, which, wanted, compiled, page, is_late)
            return FoundPage(items, page.next, page.scanned, n.n, n.exact)

        return await self._database.read(work)

    async def keys(self, wanted: CheckedFilter, after: Key | None, limit: int) -> FoundKeys:
        which = LISTS[wanted.resource]
        key = _checked(which, after)

        def work(connection: sa.Connection) -> FoundKeys:
            compiled = self._compiled(connection, wanted)
            page = search(connection, which.listing, compiled, key, limit)
            found = [which.listing.key_of(row) for row in page.rows]
            return FoundKeys(found, page.next, page.scanned)

        return await self._database.read(work)

    def _compiled(self, connection: sa.Connection, wanted: CheckedFilter) -> CompiledFilter:
        engine = self._database.dialect.name
        named = run_numbers(connection, wanted, engine)
        span = id_span(connection, wanted, engine, named.values())
        return compile_filter(wanted, engine, runs=named, span=span)


def _items(connection: sa.Connection, which: SqlList, page: Page) -> list[Any]:
    if which.view is not None:
        return [which.view(connection, row) for row in page.rows]
    return [which.item(row) for row in page.rows]


def _deadline() -> Callable[[], bool]:
    by = time.monotonic() + SECONDS
    return lambda: time.monotonic() > by


def _budget(compiled: CompiledFilter) -> int:
    return MEMORY_BUDGET if compiled.rest.terms else BUDGET


def _count(
    connection: sa.Connection,
    which: SqlList,
    wanted: CheckedFilter,
    compiled: CompiledFilter,
    page: Page,
    is_late: Callable[[], bool],
) -> Count:
    """The first page knows it when it is the only one, or when its search was cut short."""
    if page.next is None:
        return Count(len(page.rows), exact=True)
    known = kept_count(connection, wanted)
    if known is not None:
        return Count(known, exact=True)
    if page.scanned >= _budget(compiled) or (page.scanned and is_late()):
        return Count(len(page.rows), exact=False)
    n = count(connection, which.listing, compiled, budget=_budget(compiled), is_late=is_late)
    return Count(max(n.n, len(page.rows)), exact=n.exact)


def _checked(which: SqlList, after: Key | None) -> Key | None:
    """Raises InvalidInput for values that are not those of a key of this list."""
    if after is None:
        return None
    fits = len(after) == len(which.types) and all(map(_is, after, which.types))
    if not fits:
        raise InvalidInput("the page key is not one of this list; start from the first page")
    return after


def _is(value: object, kind: type) -> bool:
    if kind is float:
        return isinstance(value, float | int) and not isinstance(value, bool)
    if kind is int:
        return isinstance(value, int) and not isinstance(value, bool) and abs(value) < 2**63
    if kind is str and isinstance(value, str):
        return "\0" not in value and len(value) <= 300  # noqa: PLR2004 - no key is longer
    return isinstance(value, kind)
