"""Pages of lists with filters, for every list endpoint. Run by centers.

The filter of a caller with a scope has the condition of the scope (`model/filter/scoped.py`): what
is outside is neither listed nor counted.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypedDict

import msgspec

from skep.center.http.endpoint import Call
from skep.errors import Forbidden
from skep.model.filter.checked import (
    Between,
    CheckedFilter,
    CheckedTerm,
    Condition,
    Match,
    Pattern,
)
from skep.model.filter.matching import folded, matches
from skep.model.filter.scoped import within
from skep.store.ports.lists import FoundPage
from skep.wire.api.listing import page_key, row_key
from skep.wire.filter.check import read_filter
from skep.wire.filter.tables import TABLES

#: Fields of a query that do not change what is asked for.
_NOT_ASKED = {"page", "limit", "count"}


class More(TypedDict):
    """The fields of `Listed`."""

    next_page: str | None
    count: int | None
    exact: bool
    scanned: int


def asks_list(call: Call) -> bool:
    """Whether `listed` answers: to a query with a filter, and to callers with a scope. Older calls
    without either get the lists of earlier releases."""
    return call.query.filter is not None or bool(call.who.scope)


def asked_filter(call: Call, resource: str, *more: CheckedTerm) -> CheckedFilter:
    """The filter of the query, with further terms and within the scope of the caller; raises
    InvalidFilter."""
    return within(_unscoped(call, resource, *more), call.who.scope)


def _unscoped(call: Call, resource: str, *more: CheckedTerm) -> CheckedFilter:
    text = call.query.filter or ""
    wanted = read_filter(text, TABLES[resource], call.services.clock.now())
    return msgspec.structs.replace(wanted, terms=(*wanted.terms, *more))


async def listed(call: Call, resource: str, *more: CheckedTerm) -> tuple[list[Any], More]:
    """One page of the list, and how it goes on."""
    found, following = await found_page(call, resource, *more)
    return found.items, following


async def listed_own(call: Call, resource: str, *more: CheckedTerm) -> tuple[list[Any], More]:
    """The same for rows that have no labels: `more` must limit them to those of the caller."""
    found, following = await _found(call, resource, _unscoped(call, resource, *more))
    return found.items, following


async def found_page(call: Call, resource: str, *more: CheckedTerm) -> tuple[FoundPage, More]:
    """As `listed`, with the key of the last row as the store has it."""
    return await _found(call, resource, asked_filter(call, resource, *more))


async def _found(call: Call, resource: str, wanted: CheckedFilter) -> tuple[FoundPage, More]:
    query = call.query
    question = _question(query, call.path)
    after = row_key(query.page, resource, question)
    found = await call.services.store.lists.find(wanted, after, query.limit, counted=after is None)
    return found, _more(resource, question, found)


def listed_in_memory(
    call: Call,
    resource: str,
    rows: Sequence[Any],
    key_of: Callable[[Any], str],
    facts_of: Callable[[Any], Mapping[str, object]],
) -> tuple[list[Any], More]:
    """As `listed`, for rows that are in memory, such as agents; sorted by their key."""
    query = call.query
    wanted = asked_filter(call, resource)
    question = _question(query, call.path)
    after = row_key(query.page, resource, question)
    fitting = sorted((row for row in rows if matches(wanted, facts_of(row))), key=key_of)
    count = len(fitting) if after is None else None
    if after is not None:
        fitting = [row for row in fitting if key_of(row) > str(after[0])]
    page = fitting[: query.limit]
    following = (key_of(page[-1]),) if len(fitting) > len(page) else None
    return page, _more(resource, question, FoundPage(page, following, count=count))


def check_sees_all(call: Call) -> None:
    """Raises Forbidden for a caller with a scope, at a list whose rows are about all runs."""
    if call.who.scope:
        raise Forbidden(
            "with `filter` this list counts the work of all runs, also of those outside your scope;"
            " send it without `filter`"
        )


def is_one_of(fact: str, *texts: str) -> CheckedTerm:
    """A term: the fact is one of these texts."""
    return CheckedTerm((fact,), tuple(Pattern(Match.WHOLE, text) for text in texts))


def contains(fact: str, text: str) -> CheckedTerm:
    """A term: the text is in the fact, in any case."""
    return CheckedTerm((fact,), (Pattern(Match.CONTAINS, folded(text), fold=True),))


def between(fact: str, since: float | None, until: float | None) -> CheckedTerm:
    """A term: the time is from `since` to before `until`."""
    condition: Condition = Between(since, until, below_high=True)
    return CheckedTerm((fact,), (condition,))


def _question(query: Any, path: Mapping[str, str]) -> str:
    fields = msgspec.structs.asdict(query)
    asked = {name: value for name, value in fields.items() if name not in _NOT_ASKED}
    return repr((sorted(asked.items()), sorted(path.items())))


def _more(resource: str, question: str, found: FoundPage) -> More:
    following = None if found.next is None else page_key(resource, question, found.next)
    return More(next_page=following, count=found.count, exact=found.exact, scanned=found.scanned)
