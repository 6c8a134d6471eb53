"""Which runs have something waiting, and at which priorities. Run by centers only.

The dispatcher asks at every round, so this must cost the same for ten requests and for ten
million: only ends of indexes are looked at, never rows.
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

#: Up to here the requests of one priority are counted when a run has several.
FEW = 1000
_PRIORITIES = range(HIGHEST, LOWEST + 1)


class _Share(msgspec.Struct):
    """What the dispatcher needs of a run's settings; the others are skipped."""

    dispatch: int = 100
    order: DispatchOrder = "priority"
    failed_only: bool = False
    block_size: int = 100


_share = msgspec.msgpack.Decoder(_Share)


def read_backlog(
    connection: sa.Connection, dialect: Dialect, *, failed_only: bool
) -> list[Backlog]:
    """By priority, then by the age of the runs; `failed_only` for every run."""
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
    """How many wait, and whether only those count that failed before. Exact when they are
    few, else at most what the whole run has."""
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
    """run -> priorities at which something waits."""
    query = _BY_GROUPS if dialect.jumps_in_groups else _BY_LOOKS
    found: dict[int, set[int]] = {}
    for run, priority in connection.exec_driver_sql(query):
        found.setdefault(run, set()).add(priority)
    return found


#: MySQL jumps from group to group in the index by itself, and is slow with many subqueries.
_BY_GROUPS = "SELECT run, priority FROM requests WHERE state = 0 GROUP BY run, priority"
#: For each run a look at its first priority in the index, then at the next one, and so on. The
#: order by priority AND id is what no other index has: without it PostgreSQL reads the whole
#: table for a first row, and an EXISTS it would answer from a hash of all that waits.
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
"""  # noqa: S608 - our own words


def _failed_at(connection: sa.Connection, run: int) -> set[int]:
    """Priorities at which something waits that has failed before. (The index of it is small
    by nature; MySQL, which has none, reads the waiting rows of the run.)"""
    query = (
        sa.select(requests.c.priority)
        .where(stored(RequestState.WAITING), FAILED_BEFORE, requests.c.run == run)
        .distinct()
    )
    return set(connection.execute(query).scalars())
