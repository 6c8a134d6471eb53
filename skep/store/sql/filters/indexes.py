"""Which index finds the rows of a filter, so that a caller knows whether to bound a scan.

The list names indexes of `schema/`; a test compares it with every database. Run by centers.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import msgspec

from skep.model.filter.checked import Between, CheckedFilter, CheckedTerm, Condition, Match, Pattern
from skep.store.sql.filters.text_matching import text_matching

_PARTIAL = ("sqlite", "postgresql")
_WHOLE = ("mysql",)
_KEYS = ("PRIMARY", "UNIQUE")
#: Words that one number of the state column stands for; the block tells them apart.
_PACKED = frozenset({"queued", "leased"})


class FilterIndex(msgspec.Struct, frozen=True):
    """An index as filters see it: the columns that it begins with."""

    #: As in `schema/`; PRIMARY and UNIQUE for keys without a name of their own.
    name: str
    columns: tuple[str, ...]
    #: It holds the rows of these states only.
    states: frozenset[str] = frozenset()
    engines: tuple[str, ...] = (*_PARTIAL, *_WHOLE)


class Serving(msgspec.Struct, frozen=True):
    """How the rows of a filter are found."""

    #: Name of the index; "" = every row of the resource is looked at.
    index: str
    #: Terms that the index answers.
    answered: tuple[CheckedTerm, ...] = ()
    #: Facts that are looked up row by row. With any, a rare match can take a long scan.
    scanned: tuple[str, ...] = ()
    #: The index yields the rows in the order of pages, or very few rows.
    ordered: bool = False

    @property
    def exact(self) -> bool:
        """Every row that the index finds fits."""
        return bool(self.index) and not self.scanned

    @property
    def direct(self) -> bool:
        """A page costs as much as its rows: nothing is passed over, nothing is sorted."""
        return self.exact and self.ordered


def _of_state(name: str, word: str, *columns: str) -> tuple[FilterIndex, FilterIndex]:
    """An index of one state; engines without partial indexes begin it with the state."""
    return (
        FilterIndex(name, columns, frozenset({word}), _PARTIAL),
        FilterIndex(name, ("state", *columns), engines=_WHOLE),
    )


INDEXES: dict[str, tuple[FilterIndex, ...]] = {
    "requests": (
        FilterIndex("PRIMARY", ("id",)),
        FilterIndex("requests_once", ("run",)),
        FilterIndex(
            "requests_dead", ("run", "fault", "host", "died_at"), frozenset({"dead"}), _PARTIAL
        ),
        FilterIndex("requests_dead", ("run", "fault", "host", "died_at"), engines=_WHOLE),
        *_of_state("requests_waiting", "waiting", "run", "priority", "id"),
        *_of_state("requests_parked", "delayed", "host", "priority"),
    ),
    "runs": (FilterIndex("UNIQUE", ("id",)), FilterIndex("runs_ended", ("state", "changed_at"))),
    "jobs": (FilterIndex("PRIMARY", ("name",)),),
    "agents": (FilterIndex("PRIMARY", ("id",)),),
}
#: The column that a fact is a condition on, where an index may begin with it.
COLUMNS: dict[str, dict[str, str]] = {
    "requests": {
        "id": "id",
        "run": "run",
        "state": "state",
        "host": "host",
        "group": "fault",
        "priority": "priority",
        "created": "created_at",
        "died": "died_at",
    },
    "runs": {"id": "id", "job": "job", "state": "state", "created": "created_at"},
    "jobs": {"name": "name", "changed": "changed_at"},
    "agents": {"id": "id", "seen": "seen_at"},
}
#: The unique column that pages of a resource follow.
PAGED_BY = {"requests": "id", "runs": "no", "jobs": "name", "agents": "id"}
#: Facts of dead requests that their fault answers.
_OF_FAULT = {"error": "fault", "status": "fault"}
#: Runs are looked up first, and requests by the numbers of these runs: never a range.
_BY_NAME = ("run",)


def serving(wanted: CheckedFilter, engine: str) -> Serving:
    """The index that answers most of the filter; of several one that has the order of pages."""
    known = [one for one in INDEXES.get(wanted.resource, ()) if engine in one.engines]
    tried = [_by_index(index, wanted, engine) for index in known]
    best = max(tried, key=lambda one: (len(one.answered), one.ordered), default=None)
    if best is None or not best.answered:
        return Serving("", (), tuple(_facts(wanted.terms)))
    return best


def _by_index(index: FilterIndex, wanted: CheckedFilter, engine: str) -> Serving:
    terms = _positive(wanted)
    found = tuple(_answered(index, wanted, terms, engine))
    answered = tuple(terms[fact] for fact in found)
    ordered = _in_order(index, answered, PAGED_BY[wanted.resource])
    return Serving(index.name, answered, tuple(_left(wanted, terms, found)), ordered)


def dead_only(wanted: CheckedFilter) -> bool:
    """The filter asks for dead requests and no others."""
    return wanted.resource == "requests" and _states(_positive(wanted)) == {"dead"}


def _positive(wanted: CheckedFilter) -> dict[str, CheckedTerm]:
    """Terms that can narrow a search, by their only fact; of several the first."""
    found: dict[str, CheckedTerm] = {}
    for term in wanted.terms:
        if not term.negated and len(term.facts) == 1:
            found.setdefault(term.facts[0], term)
    return found


def _answered(
    index: FilterIndex, wanted: CheckedFilter, terms: Mapping[str, CheckedTerm], engine: str
) -> Iterator[str]:
    """Facts that the index answers: those of its first columns, up to one that is a range."""
    if index.states:
        # A group is one of dead requests, also when the filter does not say so.
        states = _states(terms) or ({"dead"} if "group" in terms else set())
        if not states or not states <= index.states:
            return
        if "state" in terms:
            yield "state"
    columns = COLUMNS[wanted.resource] | (_OF_FAULT if dead_only(wanted) else {})
    for column in index.columns:
        fact = next((one for one in terms if columns.get(one) == column), None)
        if fact is None or not _narrows(terms[fact], engine):
            return
        yield fact
        if not _fixed(terms[fact]):
            return


def _in_order(index: FilterIndex, answered: tuple[CheckedTerm, ...], key: str) -> bool:
    """Below single values an index is in the order of its next column."""
    if index.name in _KEYS and all(map(_fixed, answered)):
        return True
    if any(len(term.conditions) > 1 or term.facts[0] in _OF_FAULT for term in answered):
        return False  # several values of one column
    used = sum(not (index.states and term.facts == ("state",)) for term in answered)
    ranged = bool(answered) and not _fixed(answered[-1])
    following = index.columns[used - ranged :]
    return bool(following) and following[0] == key


def _states(terms: Mapping[str, CheckedTerm]) -> set[str]:
    term = terms.get("state")
    conditions = () if term is None else term.conditions
    return {one.text for one in conditions if isinstance(one, Pattern)}


def _fixed(term: CheckedTerm) -> bool:
    """It names single values of its column."""
    return all(_is_point(one, term.facts[0]) for one in term.conditions)


def _is_point(condition: Condition, fact: str) -> bool:
    if isinstance(condition, Between):
        return condition.low is not None and condition.low == condition.high
    if not isinstance(condition, Pattern):
        return False
    # The beginning of a group's name is its fault.
    return condition.match is Match.WHOLE or (fact == "group" and condition.match is Match.STARTS)


def _narrows(term: CheckedTerm, engine: str) -> bool:
    """It names values, a range or a beginning; only one when it is not values."""
    if _fixed(term):
        return True
    if len(term.conditions) > 1 or term.facts == _BY_NAME:
        return False
    (only,) = term.conditions
    if isinstance(only, Between):
        return only.low is not None or only.high is not None
    return (
        isinstance(only, Pattern)
        and only.match is Match.STARTS
        and not only.fold
        and text_matching(engine).finds_prefixes
    )


def _left(
    wanted: CheckedFilter, terms: Mapping[str, CheckedTerm], found: tuple[str, ...]
) -> Iterator[str]:
    """Facts of the terms that the index does not answer."""
    answered = [terms[fact] for fact in found]
    unanswered = [
        term for term in wanted.terms if term not in answered and not _is_bound(term, found)
    ]
    yield from _facts(unanswered)
    if len(_PACKED & _states(terms)) == 1 and "state" in found:
        yield "state"


def _is_bound(term: CheckedTerm, found: tuple[str, ...]) -> bool:
    """A second bound of a range: `until` beside `since`."""
    bounds = len(term.conditions) == 1 and isinstance(term.conditions[0], Between)
    return bounds and not term.negated and term.facts[0] in found


def _facts(terms: list[CheckedTerm] | tuple[CheckedTerm, ...]) -> list[str]:
    return list(dict.fromkeys(fact for term in terms for fact in term.facts))
