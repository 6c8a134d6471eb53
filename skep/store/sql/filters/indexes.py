"""Which index finds the rows of a filter, so that a caller knows whether to bound a scan.

The list names indexes of `schema/`; a test compares it with every database. Run by centers.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import msgspec

from skep.model.filter.checked import (
    Between,
    CheckedFilter,
    CheckedTerm,
    Condition,
    LabelIs,
    Match,
    Pattern,
)
from skep.store.sql.engine.dialects.registry import DIALECTS, dialect_named
from skep.store.sql.filters.text_matching import text_matching

_PARTIAL = tuple(one.name for one in DIALECTS if one.partial_indexes)
_WHOLE = tuple(one.name for one in DIALECTS if not one.partial_indexes)
#: Engines whose indexes of names are in the order of bytes, and those where only some are.
_SORTED = tuple(one.name for one in DIALECTS if one.text.finds_prefixes)
_COLLATED = tuple(one.name for one in DIALECTS if not one.text.finds_prefixes)
_KEYS = ("PRIMARY", "UNIQUE")
#: Words that one number of the state column stands for; the block tells them apart.
_PACKED = frozenset({"queued", "leased"})
_KEPT = frozenset({"enabled", "disabled"})
#: Values of one term that are searched one after the other.
SPLIT_LIMIT = 8


class FilterIndex(msgspec.Struct, frozen=True):
    """An index as filters see it: the columns that it begins with."""

    #: As in `schema/`; PRIMARY and UNIQUE for keys without a name of their own.
    name: str
    columns: tuple[str, ...]
    #: It holds the rows of these states only.
    states: frozenset[str] = frozenset()
    engines: tuple[str, ...] = (*_PARTIAL, *_WHOLE)
    #: Columns before these, of which one of the states fixes the values.
    of_state: tuple[str, ...] = ()
    #: The table, when its name is not that of the resource.
    table: str = ""
    #: Its last column is in the order of bytes, so that it finds the beginnings of names.
    by_bytes: bool = False

    @property
    def of_labels(self) -> bool:
        """It finds the rows that have a label."""
        return self.table.endswith("_labels")


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
    #: Columns to order a search by, so that the planner takes this index; often none.
    order: tuple[str, ...] = ()

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
        FilterIndex("requests_failed", ("failure", "id"), engines=_PARTIAL),
        FilterIndex("requests_dead_ids", ("id",), frozenset({"dead"}), _PARTIAL),
        FilterIndex("requests_cancelled", ("id",), frozenset({"cancelled"}), _PARTIAL),
        FilterIndex("requests_expired", ("id",), frozenset({"expired"}), _PARTIAL),
        FilterIndex("requests_dead_hosts", ("host", "id"), frozenset({"dead"}), _PARTIAL),
        FilterIndex("requests_dead_groups", ("fault", "host", "id"), frozenset({"dead"}), _PARTIAL),
    ),
    "runs": (
        FilterIndex("UNIQUE", ("id",)),
        FilterIndex("runs_created", ("created_at", "no")),
        FilterIndex("runs_of_job", ("job", "created_at", "no")),
        FilterIndex("runs_in_state", ("state", "created_at", "no")),
        FilterIndex("PRIMARY", ("name", "value"), table="run_labels"),
    ),
    "jobs": (
        FilterIndex("PRIMARY", ("name",)),
        FilterIndex("jobs_by_name", ("name",), engines=_COLLATED, by_bytes=True),
        FilterIndex("jobs_in_state", ("name",), _KEPT, _SORTED, of_state=("deleted", "enabled")),
        FilterIndex(
            "jobs_by_state",
            ("name",),
            _KEPT,
            _COLLATED,
            of_state=("deleted", "enabled"),
            by_bytes=True,
        ),
        FilterIndex("jobs_in_state", (), frozenset({"deleted"}), of_state=("deleted",)),
        FilterIndex("PRIMARY", ("name", "value"), table="job_labels"),
    ),
    "agents": (FilterIndex("PRIMARY", ("id",)),),
    "dispatches": (
        FilterIndex("dispatch_log_by_run", ("run", "id"), table="dispatch_log"),
        FilterIndex("dispatch_log_by_time", ("at",), table="dispatch_log"),
    ),
    "fires": (
        FilterIndex("fires_by_time", ("due_at",), table="fires"),
        FilterIndex("fires_of_job", ("job", "due_at"), table="fires"),
    ),
    "audit": (
        FilterIndex("audit_by_who", ("who", "id")),
        FilterIndex("audit_by_object", ("object", "id")),
        FilterIndex("audit_by_time", ("at",)),
    ),
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
        "error": "failure",
    },
    "runs": {"id": "id", "job": "job", "state": "state", "created": "created_at"},
    "jobs": {"name": "name", "changed": "changed_at"},
    "agents": {"id": "id", "seen": "seen_at"},
    "dispatches": {"run": "run", "at": "at"},
    "fires": {"job": "job", "due": "due_at"},
    "audit": {"user": "who", "object": "object", "at": "at"},
}
#: The columns that pages of a resource follow; together they are unique.
PAGED_BY: dict[str, tuple[str, ...]] = {
    "requests": ("id",),
    "runs": ("created_at", "no"),
    "jobs": ("name",),
    "agents": ("id",),
    "dispatches": ("id",),
    # Few fires are due in the same second; the rest of the key orders these.
    "fires": ("due_at",),
    "audit": ("id",),
}
#: Facts of dead requests that their fault answers.
_OF_FAULT = {"status": "fault"}
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


def split(wanted: CheckedFilter, engine: str) -> list[CheckedFilter]:
    """One filter for each value of a term, when an index has the order of pages for each value
    but not for all of them; empty otherwise."""
    if not wanted.terms or serving(wanted, engine).direct:
        return []
    for term in wanted.terms:
        if 1 < len(term.conditions) <= SPLIT_LIMIT and _fixed(term) and not term.negated:
            ones = [_only(wanted, term, one) for one in term.conditions]
            if all(serving(one, engine).direct for one in ones):
                return ones
    return []


def _only(wanted: CheckedFilter, term: CheckedTerm, condition: Condition) -> CheckedFilter:
    single = msgspec.structs.replace(term, conditions=(condition,))
    terms = tuple(single if one is term else one for one in wanted.terms)
    return msgspec.structs.replace(wanted, terms=terms)


def _by_index(index: FilterIndex, wanted: CheckedFilter, engine: str) -> Serving:
    terms = _positive(wanted)
    found = tuple(_answered(index, wanted, terms, engine))
    answered = tuple(terms[fact] for fact in found)
    ordered = not index.of_labels and _in_order(index, answered, PAGED_BY[wanted.resource])
    order = () if ordered else _order(index, answered, engine)
    return Serving(index.name, answered, tuple(_left(wanted, terms, found)), ordered, order)


def _order(index: FilterIndex, answered: tuple[CheckedTerm, ...], engine: str) -> tuple[str, ...]:
    """Only for one value of each column: several of them are not one ordered search."""
    if index.table or not dialect_named(engine).guesses_independence:
        return ()
    single = all(_fixed(term) and len(term.conditions) == 1 for term in answered)
    return index.columns if single else ()


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
    if index.of_labels:
        if "label" in terms and _names_labels(terms["label"]):
            yield "label"
        return
    columns = COLUMNS[wanted.resource] | (_OF_FAULT if dead_only(wanted) else {})
    for column in index.columns:
        fact = next((one for one in terms if columns.get(one) == column), None)
        prefixes = index.by_bytes or text_matching(engine).finds_prefixes
        if fact is None or not _narrows(terms[fact], prefixes=prefixes):
            return
        yield fact
        if not _fixed(terms[fact]):
            return


def _names_labels(term: CheckedTerm) -> bool:
    return all(isinstance(one, LabelIs) and one.name for one in term.conditions)


def _in_order(index: FilterIndex, answered: tuple[CheckedTerm, ...], key: tuple[str, ...]) -> bool:
    """Below single values an index is in the order of its next column."""
    if index.name in _KEYS and all(map(_fixed, answered)):
        return True
    if any(len(term.conditions) > 1 or term.facts[0] in _OF_FAULT for term in answered):
        return False  # several values of one column
    used = sum(not (index.states and term.facts == ("state",)) for term in answered)
    if any(term.facts == ("group",) and _with_host(term) for term in answered):
        used += index.columns[used : used + 1] == ("host",)
    ranged = bool(answered) and not _fixed(answered[-1])
    following = index.columns[used - ranged :]
    return following[: len(key)] == key


def _with_host(term: CheckedTerm) -> bool:
    """The name of a group has its host in it."""
    return all(isinstance(one, Pattern) and one.match is Match.WHOLE for one in term.conditions)


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


def _narrows(term: CheckedTerm, *, prefixes: bool) -> bool:
    """It names values, a range or, where the index finds `prefixes`, a beginning; only one when
    it is not values."""
    if _fixed(term):
        return True
    if len(term.conditions) > 1 or term.facts == _BY_NAME:
        return False
    (only,) = term.conditions
    if isinstance(only, Between):
        return only.low is not None or only.high is not None
    return isinstance(only, Pattern) and only.match is Match.STARTS and not only.fold and prefixes


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
