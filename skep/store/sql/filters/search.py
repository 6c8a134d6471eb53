"""One page of what a filter finds, and how many there are. Run by centers, on readers.

Pages follow a unique key. When an index yields the rows in that order, or only a few rows, a
page is one query. Otherwise rows are looked at in stretches of the key, a bounded number per
call: the answer says how far it got, and the next call continues there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import msgspec
import sqlalchemy as sa

from skep.model.filter.matching import matches
from skep.store.sql.filters.compile import CompiledFilter
from skep.store.sql.filters.text_matching import Truth

#: Rows that one query looks at, and that one call does.
STRETCH = 2000
BUDGET = 20_000
#: Counting ends here; people are shown "10,000+".
COUNT_LIMIT = 10_000


@dataclass(frozen=True, slots=True)
class Listing:
    """What is listed: a query whose first column is the key, and the order of its pages."""

    query: sa.Select[Any]
    key: sa.Column[Any]
    newest_first: bool = True
    #: Facts of a row, for terms that no column answers.
    facts: Callable[[Any], Mapping[str, object]] | None = None
    #: Rows that are looked at in one query.
    stretch: int = STRETCH

    def beyond(self, key: object) -> list[Truth]:
        """Rows after this key, in the order of the pages; all when it is None."""
        if key is None:
            return []
        return [self.key < key if self.newest_first else self.key > key]

    def up_to(self, key: object) -> Truth:
        return self.key >= key if self.newest_first else self.key <= key

    @property
    def order(self) -> sa.ColumnElement[Any]:
        return self.key.desc() if self.newest_first else self.key.asc()


class Page(msgspec.Struct, frozen=True):
    """Rows that fit. While `next` is not None there may be more after that key."""

    rows: list[Any]
    next: Any = None
    #: Rows that were looked at; 0 = an index found them.
    scanned: int = 0


class Count(msgspec.Struct, frozen=True):
    """How many fit; without `exact` that many or more."""

    n: int
    exact: bool


def search(
    connection: sa.Connection,
    listing: Listing,
    wanted: CompiledFilter,
    after: object = None,
    limit: int = 50,
    budget: int = BUDGET,
) -> Page:
    """The next `limit` rows after a key, or fewer when the budget is used up."""
    if wanted.serving.direct or wanted.is_empty or _are_few(connection, listing, wanted):
        within = [*wanted.conditions, *listing.beyond(after)]
        return _page(_rows(connection, listing, wanted, within, limit + 1), limit)
    found: list[Any] = []
    scanned = 0
    for stretch in _stretches(connection, listing, wanted, after, limit + 1):
        found += stretch.rows
        scanned += stretch.scanned
        if len(found) > limit:
            return _page(found, limit, scanned)
        if scanned >= budget and not stretch.last:
            return Page(found, stretch.edge, scanned)
    return Page(found, None, scanned)


def count(
    connection: sa.Connection,
    listing: Listing,
    wanted: CompiledFilter,
    limit: int = COUNT_LIMIT,
    budget: int = BUDGET,
) -> Count:
    """Counted up to `limit`, over at most `budget` rows when no index finds them."""
    if wanted.serving.exact or wanted.is_empty:
        n = _count(connection, listing, wanted.conditions, limit + 1)
        return Count(min(n, limit), exact=n <= limit)
    if _are_few(connection, listing, wanted):
        n = len(_rows(connection, listing, wanted, list(wanted.conditions), limit + 1))
        return Count(min(n, limit), exact=n <= limit)
    n = scanned = 0
    for stretch in _stretches(connection, listing, wanted, None, None):
        n += len(stretch.rows)
        scanned += stretch.scanned
        if n > limit or (scanned >= budget and not stretch.last):
            return Count(min(n, limit), exact=False)
    return Count(n, exact=True)


def _page(rows: list[Any], limit: int, scanned: int = 0) -> Page:
    more = len(rows) > limit
    return Page(rows[:limit], rows[limit - 1][0] if more else None, scanned)


class _Stretch(NamedTuple):
    """A part of the table: its last key, how many rows it has, and those that fit."""

    edge: Any
    scanned: int
    rows: list[Any]
    last: bool


def _stretches(
    connection: sa.Connection,
    listing: Listing,
    wanted: CompiledFilter,
    after: object,
    limit: int | None,
) -> Iterator[_Stretch]:
    """One after the other, up to the end; `limit` is for the rows of each."""
    while True:
        scanned, edge = _edge(connection, listing, wanted, after)
        if not scanned:
            return
        # As `IS TRUE` no other index is taken for a condition: it could lead to far more rows
        # than the stretch has.
        fitting = [one.is_(sa.true()) for one in wanted.conditions]
        within = [*wanted.narrowing, *fitting, *listing.beyond(after), listing.up_to(edge)]
        rows = _rows(connection, listing, wanted, within, limit)
        yield _Stretch(edge, scanned, rows, last := scanned < listing.stretch)
        if last:
            return
        after = edge


def _edge(
    connection: sa.Connection, listing: Listing, wanted: CompiledFilter, after: object
) -> tuple[int, Any]:
    """How many rows the next stretch has, and its last key."""
    query = sa.select(listing.key.label("key")).where(*wanted.narrowing, *listing.beyond(after))
    some = query.order_by(listing.order).limit(listing.stretch).subquery()
    last = sa.func.min(some.c.key) if listing.newest_first else sa.func.max(some.c.key)
    n, edge = connection.execute(sa.select(sa.func.count(), last).select_from(some)).one()
    return int(n), edge


def _are_few(connection: sa.Connection, listing: Listing, wanted: CompiledFilter) -> bool:
    """The index leads to no more rows than one stretch has."""
    if not wanted.answered:
        return False
    return _count(connection, listing, wanted.answered, listing.stretch + 1) <= listing.stretch


def _count(
    connection: sa.Connection, listing: Listing, conditions: tuple[Truth, ...], limit: int
) -> int:
    """Rows that fit, `limit` at most."""
    some = sa.select(listing.key).where(*conditions).limit(limit).subquery()
    return int(connection.execute(sa.select(sa.func.count()).select_from(some)).scalar_one())


def _rows(
    connection: sa.Connection,
    listing: Listing,
    wanted: CompiledFilter,
    within: list[Truth],
    limit: int | None,
) -> list[Any]:
    """In the order of pages; what no column answers is decided here."""
    query = listing.query.where(*within).order_by(listing.order)
    if not wanted.rest.terms:
        return list(connection.execute(query.limit(limit)).all())
    facts = listing.facts
    if facts is None:
        raise ValueError(f"no facts are known for {wanted.rest.terms[0].facts}")
    return [row for row in connection.execute(query) if matches(wanted.rest, facts(row))]
