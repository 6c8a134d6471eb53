"""One page of what a filter finds, and how many there are. Run by centers, on readers.

Pages follow a unique key. When an index yields the rows in that order, or only a few rows, a
page is one query. Otherwise rows are looked at in stretches of the key, a bounded number per
call: the answer says how far it got, and the next call continues there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any, NamedTuple

import msgspec
import sqlalchemy as sa

from skep.model.filter.matching import matches
from skep.store.sql.engine.predicates import in_list
from skep.store.sql.engine.text_matching import by_bytes
from skep.store.sql.filters.compile import CompiledFilter
from skep.store.sql.filters.text_matching import Truth

#: Rows that one query looks at, and that one call does.
STRETCH = 2000
BUDGET = 20_000
#: Counting ends here; people are shown "10,000+".
COUNT_LIMIT = 10_000


#: The values of a row's key columns.
Key = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Listing:
    """What is listed: a query that begins with the key columns, and the order of its pages."""

    query: sa.Select[Any]
    #: One column, or several of which each orders the rows that are equal before it.
    key: sa.Column[Any] | tuple[sa.Column[Any], ...]
    newest_first: bool = True
    #: Facts of a row, for terms that no column answers.
    facts: Callable[[Any], Mapping[str, object]] | None = None
    #: Rows that are looked at in one query.
    stretch: int = STRETCH
    #: What every row of the list fits, whatever the filter.
    always: tuple[Truth, ...] = ()
    #: The key is a name, and pages are in the order of its bytes in every database.
    by_bytes: bool = False

    @property
    def keys(self) -> tuple[sa.Column[Any], ...]:
        return self.key if isinstance(self.key, tuple) else (self.key,)

    def beyond(self, key: Key | None) -> list[Truth]:
        """Rows after this key, in the order of the pages; all when it is None."""
        return [] if key is None else [self._past(0, key, with_key=False)]

    def up_to(self, key: Key) -> Truth:
        """Rows up to this key and the row that has it."""
        return self._past(0, key, with_key=True, back=True)

    def _past(self, at: int, key: Key, *, with_key: bool, back: bool = False) -> Truth:
        """`(a, b) < (x, y)`, in the form that every engine searches an index by."""
        column, value = self._sorted(self.keys[at]), key[at]
        falling = self.newest_first != back
        if at == len(self.keys) - 1:
            return _compared(column, value, falling=falling, with_key=with_key)
        within = column <= value if falling else column >= value
        rest = self._past(at + 1, key, with_key=with_key, back=back)
        return sa.and_(within, sa.or_(column != value, rest))

    @property
    def order(self) -> list[sa.ColumnElement[Any]]:
        keys = map(self._sorted, self.keys)
        return [one.desc() if self.newest_first else one.asc() for one in keys]

    def _sorted(self, column: sa.Column[Any]) -> sa.ColumnElement[Any]:
        return by_bytes(column) if self.by_bytes else column

    def key_of(self, row: Any) -> Key:
        return tuple(row[: len(self.keys)])


def _compared(column: sa.ColumnElement[Any], value: Any, *, falling: bool, with_key: bool) -> Truth:
    found: Truth
    if with_key:
        found = column <= value if falling else column >= value
    else:
        found = column < value if falling else column > value
    return found


class Page(msgspec.Struct, frozen=True):
    """Rows that fit. While `next` is not None there may be more after that key."""

    rows: list[Any]
    next: Key | None = None
    #: Rows that were looked at; 0 = an index found them.
    scanned: int = 0


class Count(msgspec.Struct, frozen=True):
    """How many fit; without `exact` that many or more."""

    n: int
    exact: bool


def _never() -> bool:
    return False


def search(
    connection: sa.Connection,
    listing: Listing,
    wanted: CompiledFilter,
    after: Key | None = None,
    limit: int = 50,
    budget: int = BUDGET,
    is_late: Callable[[], bool] = _never,
) -> Page:
    """The next `limit` rows after a key, or fewer when the budget is used up or it `is_late`:
    then one stretch was searched at least."""
    if wanted.branches:
        return _merged(connection, listing, wanted, after, limit)
    if wanted.serving.direct or wanted.is_empty:
        within = [*wanted.conditions, *wanted.span, *listing.beyond(after)]
        return _page(listing, _rows(connection, listing, wanted, within, limit + 1), limit)
    few = _few(connection, listing, wanted)
    if few is not None:
        # As `IS TRUE` these are checked row by row: no index is taken for them.
        rest = [one.is_(sa.true()) for one in (*wanted.span, *listing.beyond(after))]
        rows = _rows(connection, listing, wanted, [*few, *rest], limit + 1)
        return _page(listing, rows, limit)
    found: list[Any] = []
    scanned = 0
    for stretch in _stretches(connection, listing, wanted, after):
        found += _rows(connection, listing, wanted, stretch.within, limit + 1 - len(found))
        scanned += stretch.scanned
        if len(found) > limit:
            return _page(listing, found, limit, scanned)
        if (scanned >= budget or is_late()) and not stretch.last:
            return Page(found, stretch.edge, scanned)
    return Page(found, None, scanned)


def count(
    connection: sa.Connection,
    listing: Listing,
    wanted: CompiledFilter,
    limit: int = COUNT_LIMIT,
    budget: int = BUDGET,
    is_late: Callable[[], bool] = _never,
) -> Count:
    """Counted up to `limit`, over at most `budget` rows when no index finds them."""
    if wanted.branches:
        n = sum(count(connection, listing, one, limit, budget).n for one in wanted.branches)
        return Count(min(n, limit), exact=n < limit)
    if wanted.serving.exact or wanted.is_empty:
        n = _count(connection, listing, (*wanted.conditions, *wanted.span), limit + 1)
        return Count(min(n, limit), exact=n <= limit)
    few = _few(connection, listing, wanted)
    if few is not None:
        n = _number(connection, listing, wanted, few, limit + 1)
        return Count(min(n, limit), exact=n <= limit)
    n = scanned = 0
    for stretch in _stretches(connection, listing, wanted, None):
        n += _number(connection, listing, wanted, stretch.within, limit + 1)
        scanned += stretch.scanned
        if n > limit or ((scanned >= budget or is_late()) and not stretch.last):
            return Count(min(n, limit), exact=False)
    return Count(n, exact=True)


def _merged(
    connection: sa.Connection,
    listing: Listing,
    wanted: CompiledFilter,
    after: Key | None,
    limit: int,
) -> Page:
    """Of several searches that find different rows, each in the order of pages."""
    rows = [
        row
        for one in wanted.branches
        for row in _rows(
            connection,
            listing,
            one,
            [*one.conditions, *one.span, *listing.beyond(after)],
            limit + 1,
        )
    ]
    rows.sort(key=listing.key_of, reverse=listing.newest_first)
    return _page(listing, rows, limit)


def _page(listing: Listing, rows: list[Any], limit: int, scanned: int = 0) -> Page:
    more = len(rows) > limit
    return Page(rows[:limit], listing.key_of(rows[limit - 1]) if more else None, scanned)


class _Stretch(NamedTuple):
    """A part of the table: its last key, how many rows it has, and what finds those that fit."""

    edge: Key | None
    scanned: int
    within: list[Truth]
    last: bool


def _stretches(
    connection: sa.Connection, listing: Listing, wanted: CompiledFilter, after: Key | None
) -> Iterator[_Stretch]:
    """One after the other, up to the end."""
    # As `IS TRUE` no other index is taken for a condition: it could lead to far more rows than
    # the stretch has.
    fitting = [one.is_(sa.true()) for one in wanted.conditions]
    while True:
        part = [*wanted.narrowing, *wanted.span, *listing.beyond(after)]
        edge = _edge(connection, listing, part)
        if edge is None:
            scanned = _count(connection, listing, tuple(part), listing.stretch)
            if scanned:
                yield _Stretch(None, scanned, [*part, *fitting], last=True)
            return
        yield _Stretch(edge, listing.stretch, [*part, listing.up_to(edge), *fitting], last=False)
        after = edge


def _edge(connection: sa.Connection, listing: Listing, part: list[Truth]) -> Key | None:
    """The last key of a whole stretch; None when fewer rows are left."""
    query = sa.select(*listing.keys).where(*part).order_by(*listing.order)
    row = connection.execute(query.limit(1).offset(listing.stretch - 1)).first()
    return None if row is None else tuple(row)


def _few(connection: sa.Connection, listing: Listing, wanted: CompiledFilter) -> list[Truth] | None:
    """What finds the rows when the index leads to no more of them than one stretch has."""
    found = wanted.answered or wanted.span
    if not found:
        return None
    if len(listing.keys) > 1 or not isinstance(listing.keys[0].type, sa.Integer):
        fits = _count(connection, listing, found, listing.stretch + 1) <= listing.stretch
        return list(wanted.conditions) if fits else None
    # By number, since a planner may take another index for whole rows than for their keys.
    some = sa.select(listing.keys[0]).where(*found).limit(listing.stretch + 1)
    if wanted.answered:
        some = some.order_by(*(listing.keys[0].table.c[name] for name in wanted.serving.order))
    numbers = list(connection.execute(some).scalars())
    if len(numbers) > listing.stretch:
        return None
    by_number = in_list(listing.keys[0], numbers)
    return [by_number, *(one.is_(sa.true()) for one in wanted.conditions)]


def _count(
    connection: sa.Connection, listing: Listing, conditions: tuple[Truth, ...], limit: int
) -> int:
    """Rows that fit, `limit` at most."""
    some: sa.Select[Any] = sa.select(sa.literal_column("1")).select_from(listing.keys[0].table)
    some = some.where(*conditions, *listing.always).limit(limit)
    counted = sa.select(sa.func.count()).select_from(some.subquery())
    return int(connection.execute(counted).scalar_one())


def _number(
    connection: sa.Connection,
    listing: Listing,
    wanted: CompiledFilter,
    within: list[Truth],
    limit: int,
) -> int:
    """How many rows fit, also by what no column answers."""
    if wanted.rest.terms:
        return len(_rows(connection, listing, wanted, within, limit))
    return _count(connection, listing, tuple(within), limit)


def _rows(
    connection: sa.Connection,
    listing: Listing,
    wanted: CompiledFilter,
    within: list[Truth],
    limit: int | None,
) -> list[Any]:
    """In the order of pages; what no column answers is decided here."""
    query = listing.query.where(*within, *listing.always).order_by(*listing.order)
    if not wanted.rest.terms:
        return list(connection.execute(query.limit(limit)).all())
    facts = listing.facts
    if facts is None:
        raise ValueError(f"no facts are known for {wanted.rest.terms[0].facts}")
    fitting = (row for row in connection.execute(query) if matches(wanted.rest, facts(row)))
    return list(islice(fitting, limit))
