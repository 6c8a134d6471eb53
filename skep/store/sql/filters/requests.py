"""What the fields of requests mean in SQL. Run by centers only.

A request's last attempt is that with the highest block and token. Its failure class is a
column; the status of a dead request is that of its fault, which is written once, when it dies.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import sqlalchemy as sa

from skep.model.failures.failure_fingerprint import parse_group
from skep.model.filter.checked import CheckedFilter, Condition, Match, Pattern
from skep.model.states import BlockState, RequestState
from skep.store.sql.engine.predicates import stored
from skep.store.sql.filters.bindings import (
    Binding,
    Bindings,
    Scope,
    labelled,
    named_in,
    number_condition,
    number_of,
    text_condition,
    text_of,
    words_in,
    words_of,
)
from skep.store.sql.filters.text_matching import Expression, Truth, text_matching
from skep.store.sql.schema.blocks import blocks
from skep.store.sql.schema.ended_work import faults
from skep.store.sql.schema.requests import attempts, requests
from skep.store.sql.schema.runs import run_labels, runs

MICROSECONDS = 1_000_000

_IN_HAND = (
    sa.exists()
    .where(blocks.c.id == requests.c.block, blocks.c.state == int(BlockState.USING))
    .correlate(requests)
)
_PACKED = stored(RequestState.QUEUED)
_STATES: dict[str, Truth] = {
    **{state.name.lower(): stored(state) for state in RequestState},
    "queued": sa.and_(_PACKED, sa.not_(_IN_HAND)),
    "leased": sa.and_(_PACKED, _IN_HAND),
}


def _last(column: sa.Column[Any]) -> Expression:
    """A column of the last attempt; NULL before the first."""
    query = sa.select(column).where(attempts.c.request == requests.c.id).correlate(requests)
    newest = query.order_by(attempts.c.block.desc(), attempts.c.token.desc()).limit(1)
    return newest.scalar_subquery()


def run_numbers(connection: sa.Connection, wanted: CheckedFilter, engine: str) -> dict[str, int]:
    """Numbers of the runs that a filter names. With them PostgreSQL knows how large a run is,
    and reads the newest requests of a large one instead of sorting all of them."""
    terms = [term for term in wanted.terms if term.facts == ("run",)]
    names = [name for term in terms for name in words_in(term.conditions)]
    if wanted.resource != "requests" or not names:
        return {}
    query = sa.select(runs.c.id, runs.c.no).where(text_matching(engine).one_of(runs.c.id, names))
    return {row.id: int(row.no) for row in connection.execute(query)}


_by_run_name = named_in(requests.c.run, runs.c.no, runs.c.id, unique=True)


def _run(conditions: Sequence[Condition], scope: Scope) -> Truth:
    names = words_in(conditions)
    if scope.runs is None or len(names) < len(conditions):
        return _by_run_name(conditions, scope)
    numbers = [scope.runs[name] for name in names if name in scope.runs]
    return requests.c.run == numbers[0] if len(numbers) == 1 else requests.c.run.in_(numbers)


def _failed_with(
    of_fault: sa.Column[Any], of_attempt: sa.Column[Any], condition: Callable[..., Truth]
) -> Binding:
    """By the fault of a dead request, and by the last attempt at any other."""

    def bind(conditions: Sequence[Condition], scope: Scope) -> Truth:
        kinds = sa.select(faults.c.id).where(condition(of_fault, conditions, scope))
        dead = sa.and_(stored(RequestState.DEAD), requests.c.fault.in_(kinds))
        if scope.only_dead:
            return dead
        alive = requests.c.state != sa.literal_column(str(int(RequestState.DEAD)))
        return sa.or_(dead, sa.and_(alive, condition(_last(of_attempt), conditions, scope)))

    return bind


def _error(conditions: Sequence[Condition], scope: Scope) -> Truth:
    # In the words of the partial index; a request that is done keeps its last failure.
    fits = text_condition(requests.c.failure, conditions, scope)
    return sa.and_(fits, requests.c.state != sa.literal_column(str(int(RequestState.DONE))))


def _status(column: Expression, conditions: Sequence[Condition], _scope: Scope) -> Truth:
    # 0 stands for "no answer", so the status is absent.
    return number_condition(sa.func.nullif(column, 0), conditions)


def _group(conditions: Sequence[Condition], scope: Scope) -> Truth:
    patterns = [one for one in conditions if isinstance(one, Pattern)]
    dead = (stored(RequestState.DEAD), requests.c.fault.is_not(None))
    return sa.and_(*dead, sa.or_(*(_of_group(one, scope) for one in patterns)))


def _of_group(pattern: Pattern, scope: Scope) -> Truth:
    if pattern.match is Match.ANY:
        return requests.c.fault.is_not(None)
    fault, host = parse_group(pattern.text)
    same = requests.c.fault == fault
    if pattern.match is Match.STARTS:
        return same
    return sa.and_(same, scope.text.one_of(requests.c.host, [host or ""]))


REQUEST_BINDINGS: Bindings = {
    "id": number_of(requests.c.id),
    "state": words_of(_STATES),
    "run": _run,
    "job": named_in(requests.c.run, runs.c.no, runs.c.job),
    "host": text_of(requests.c.host),
    "uri": text_of(requests.c.uri),
    "error": _error,
    "label": labelled(requests.c.run, run_labels.c.run),
    "status": _failed_with(faults.c.status, attempts.c.status, _status),
    "group": _group,
    "detail": text_of(_last(attempts.c.detail)),
    "agent": text_of(_last(attempts.c.agent)),
    "failures": number_of(requests.c.failures),
    "priority": number_of(requests.c.priority),
    "block": number_of(requests.c.block),
    "duration": number_of(_last(attempts.c.elapsed_us), MICROSECONDS),
    "size": number_of(_last(attempts.c.received)),
    "created": number_of(requests.c.created_at),
    "died": number_of(requests.c.died_at),
}
