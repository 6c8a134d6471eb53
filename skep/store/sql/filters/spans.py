"""Between which ids the requests that a filter finds must be. Run by centers, on readers.

A run and a minute each have a span, written by the calls that accept requests (`Tx.span`). A
span contains every id that it is about, and often others: it bounds a search and never decides
whether a row fits.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import sqlalchemy as sa

from skep.model.filter.checked import Between, CheckedFilter, CheckedTerm
from skep.store.sql.engine.database import MINUTE, MINUTES, OF_RUN
from skep.store.sql.filters.bindings import Scope, labelled, words_in
from skep.store.sql.filters.text_matching import Truth, text_matching
from skep.store.sql.schema.requests import request_spans, requests
from skep.store.sql.schema.runs import run_labels, runs

#: Runs whose spans are read; a job or a label with more of them is searched without.
RUNS_LIMIT = 1000
_LABELLED = labelled(runs.c.no, run_labels.c.run)


def id_span(
    connection: sa.Connection, wanted: CheckedFilter, engine: str, named: Iterable[int]
) -> tuple[Truth, ...]:
    """Bounds of the id, for a filter of requests; `named` are the numbers of the runs that it
    names."""
    if wanted.resource != "requests":
        return ()
    terms = [term for term in wanted.terms if not term.negated and len(term.facts) == 1]
    found: list[Truth] = []
    if any(_whole(term, "run") for term in terms):
        found += _of_runs(connection, sorted(set(named)))
    for term in terms:
        if _whole(term, "job"):
            found += _of_job(connection, words_in(term.conditions), engine)
        if term.facts == ("label",):
            found += _of_labels(connection, term, engine)
        if term.facts == ("created",):
            found += _of_time(connection, term)
    return tuple(found)


def _whole(term: CheckedTerm, fact: str) -> bool:
    """It names single values of the fact."""
    return term.facts == (fact,) and len(words_in(term.conditions)) == len(term.conditions)


def _of_job(connection: sa.Connection, names: list[str], engine: str) -> list[Truth]:
    query = sa.select(runs.c.no).where(text_matching(engine).one_of(runs.c.job, names))
    numbers = list(connection.execute(query.limit(RUNS_LIMIT + 1)).scalars())
    return [] if len(numbers) > RUNS_LIMIT else _of_runs(connection, numbers)


def _of_labels(connection: sa.Connection, term: CheckedTerm, engine: str) -> list[Truth]:
    fits = _LABELLED(term.conditions, Scope(text_matching(engine), 0.0))
    query = sa.select(runs.c.no).where(fits)
    numbers = list(connection.execute(query.limit(RUNS_LIMIT + 1)).scalars())
    return [] if len(numbers) > RUNS_LIMIT else _of_runs(connection, numbers)


def _of_runs(connection: sa.Connection, numbers: Sequence[int]) -> list[Truth]:
    of = request_spans.c.number.in_(numbers)
    return _bounds(connection, [request_spans.c.kind == OF_RUN, of], low=True, high=True)


def _of_time(connection: sa.Connection, term: CheckedTerm) -> list[Truth]:
    """The hull of all alternatives; one without a bound leaves that side open."""
    bounds = [one for one in term.conditions if isinstance(one, Between)]
    lows, highs = [one.low for one in bounds], [one.high for one in bounds]
    low = min((one for one in lows if one is not None), default=None) if None not in lows else None
    high = max((one for one in highs if one is not None), default=0) if None not in highs else None
    minutes: list[Truth] = [request_spans.c.kind.in_(MINUTES)]
    if low is not None:
        minutes.append(request_spans.c.number >= _minute(low))
    if high is not None:
        minutes.append(request_spans.c.number <= _minute(high))
    return _bounds(connection, minutes, low=low is not None, high=high is not None)


def _minute(moment: float) -> int:
    return max(-(2**62), min(2**62, int(moment // MINUTE)))


def _bounds(connection: sa.Connection, which: list[Truth], *, low: bool, high: bool) -> list[Truth]:
    if not low and not high:
        return []
    query = sa.select(sa.func.min(request_spans.c.low), sa.func.max(request_spans.c.high))
    first, last = connection.execute(query.where(*which)).one()
    if first is None:  # no request was accepted there
        return [requests.c.id < 0]
    found = [requests.c.id >= int(first)] if low else []
    return [*found, requests.c.id <= int(last)] if high else found
