"""Finds runs with waiting requests, and their priorities. Run by centers only.

The dispatcher calls it in every round, so it must cost the same for ten requests and for ten
million: it reads only the ends of indexes, never rows.
"""

from __future__ import annotations

from typing import Any

import msgspec
import sqlalchemy as sa

from skep.model.dispatch import DispatchOrder
from skep.model.lane import HIGHEST, LOWEST
from skep.model.states import RequestState, RunState
from skep.store.ports.requests import Backlog
from skep.store.sql.engine.dialect import Dialect
from skep.store.sql.engine.predicates import FAILED_BEFORE, stored
from skep.store.sql.schema.requests import requests, tallies
from skep.store.sql.schema.runs import runs

#: Maximum count of requests of one priority when a run has several priorities.
FEW = 1000
_PRIORITIES = range(HIGHEST, LOWEST + 1)


class _Share(msgspec.Struct):
    """The settings of a run that the dispatcher needs; others are not decoded."""

    dispatch: int = 100
    order: DispatchOrder = "priority"
    failed_only: bool = False
    block_size: int = 100


_share = msgspec.msgpack.Decoder(_Share)


def read_backlog(
    connection: sa.Connection, dialect: Dialect, *, failed_only: bool
) -> list[Backlog]:
    """Sorted by priority, then by the age of the runs; `failed_only` applies to every run."""
    found = {row.no: row for row in connection.execute(_BUSY_RUNS)}
    shares = {no: _share.decode(row.settings) for no, row in found.items()}
    again = {no for no, share in shares.items() if failed_only or share.failed_only}
    at = _waiting_at(connection, dialect) if len(again) < len(found) else {}
    at |= {no: _failed_at(connection, no) for no in again}
    return [
        _entry(
            found[no], shares[no], priority, _number(connection, found[no], priority, at[no], again)
        )
        for priority in _PRIORITIES
        for no in found
        if priority in at.get(no, ())
    ]


def _number(
    connection: sa.Connection, row: Any, priority: int, priorities: set[int], again: set[int]
) -> tuple[int, bool]:
    """How many wait, and whether only requests that failed before count. Exact when there are
    few, else at most the number of the whole run."""
    failed_only = row.no in again
    if len(priorities) == 1 and not failed_only:
        return row.n, False
    some: sa.Select[Any] = sa.select(sa.literal_column("1")).select_from(requests)
    some = some.where(requests.c.run == row.no, requests.c.priority == priority)
    some = some.where(stored(RequestState.WAITING))
    if failed_only:
        some = some.where(FAILED_BEFORE)
    counted = sa.select(sa.func.count()).select_from(some.limit(FEW).subquery())
    number = int(connection.execute(counted).scalar_one())
    return (number if number < FEW else row.n), failed_only


def _entry(row: Any, share: _Share, priority: int, number: tuple[int, bool]) -> Backlog:
    waiting, failed_only = number
    size, dispatch, order = share.block_size, share.dispatch, share.order
    return Backlog(row.id, priority, waiting, size, row.job, dispatch, order, failed_only)


_BUSY_RUNS = (
    sa.select(runs.c.no, runs.c.id, runs.c.job, runs.c.settings, tallies.c.n)
    .join(tallies, tallies.c.run == runs.c.no)
    .where(tallies.c.state == int(RequestState.WAITING), tallies.c.n > 0)
    .where(runs.c.state == str(RunState.RUNNING))
    .order_by(runs.c.no)
)


def _waiting_at(connection: sa.Connection, dialect: Dialect) -> dict[int, set[int]]:
    """run -> priorities of waiting requests."""
    query = _BY_GROUPS if dialect.jumps_in_groups else _BY_LOOKS
    found: dict[int, set[int]] = {}
    for run, priority in connection.exec_driver_sql(query):
        found.setdefault(run, set()).add(priority)
    return found


#: MySQL skips from group to group in the index itself, and is slow with many subqueries.
_BY_GROUPS = "SELECT run, priority FROM requests WHERE state = 0 GROUP BY run, priority"
#: For each run it reads the first priority in the index, then the next one, and so on. Only one
#: index has the order by priority AND id: without it PostgreSQL reads the whole table for the
#: first row, and would answer an EXISTS from a hash of all waiting requests.
_BY_LOOKS = f"""
WITH RECURSIVE waits (run, priority) AS (
    SELECT runs.no, (
        SELECT priority FROM requests WHERE state = 0 AND requests.run = runs.no
        ORDER BY priority, id LIMIT 1
    )
    FROM runs JOIN tallies ON tallies.run = runs.no
    WHERE tallies.state = 0 AND tallies.n > 0 AND runs.state = '{RunState.RUNNING}'
    UNION ALL
    SELECT waits.run, (
        SELECT priority FROM requests
        WHERE state = 0 AND requests.run = waits.run AND requests.priority > waits.priority
        ORDER BY priority, id LIMIT 1
    )
    FROM waits WHERE waits.priority IS NOT NULL
)
SELECT run, priority FROM waits WHERE priority IS NOT NULL
"""  # noqa: S608 - no user input


def _failed_at(connection: sa.Connection, run: int) -> set[int]:
    """Priorities of waiting requests that failed before. (Its index is small; MySQL, which has
    none, reads the waiting rows of the run.)"""
    query = (
        sa.select(requests.c.priority)
        .where(stored(RequestState.WAITING), FAILED_BEFORE, requests.c.run == run)
        .distinct()
    )
    return set(connection.execute(query).scalars())
