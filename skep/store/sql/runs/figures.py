"""The figures of a run: counted with every report, read at any time. Implements `Figures`.

Run by centers only. Each figure is one row per run, so that reading them costs the same for
ten requests and for ten million. The answers of the last minute are counted in slots of some
seconds; housekeeping deletes old slots.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import sqlalchemy as sa

from skep.model.request import Outcome
from skep.model.run_figures import RunFigures
from skep.store.sql.engine.database import Database, Tx
from skep.store.sql.runs.runs import row_of
from skep.store.sql.schema.runs import figures

#: Seconds of one slot, and slots that make a rate.
SLOT = 10
SLOTS = 6

RECEIVED, SENT = "bytes.received", "bytes.sent"
#: After every name that begins with RATE.
RATE_END = "rate/"
STATUS, FAILURE, AGENT, RATE = "status.", "failure.", "agent.", "rate."


class SqlFigures:
    """Rows of `figures`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def read(self, run_id: str, now: float) -> RunFigures:
        def work(connection: sa.Connection) -> RunFigures:
            run = row_of(connection, run_id)
            query = sa.select(figures.c.name, figures.c.n).where(figures.c.run == run.no)
            counts = {name: int(n) for name, n in connection.execute(query)}
            return _figures(counts, run.created_at, now)

        return await self._database.read(work)

    async def forget_rates(self, now: float) -> int:
        oldest = _slot(now) - 2 * SLOTS
        old = sa.and_(figures.c.name >= RATE, figures.c.name < _rate_name(oldest))

        def work(tx: Tx) -> int:
            return int(tx.execute(sa.delete(figures).where(old)).rowcount)

        return await self._database.write(work)


def count_outcomes(tx: Tx, run: int, agent: str, outcomes: Sequence[Outcome], now: float) -> None:
    """Add the outcomes of one report; written with those of all callers at the end."""
    if not outcomes:
        return
    counts = tx.figures
    received = sent = 0
    statuses: dict[int, int] = {}
    # One pass: this runs for every outcome.
    for outcome in outcomes:
        received += outcome.received
        sent += outcome.sent
        status = outcome.status
        statuses[status] = statuses.get(status, 0) + 1
        if outcome.failure:
            counts[run, FAILURE + outcome.failure] += 1
    for status, n in statuses.items():
        if status:
            counts[run, f"{STATUS}{status}"] += n
    counts[run, RECEIVED] += received
    counts[run, SENT] += sent
    counts[run, AGENT + agent] += len(outcomes)
    counts[run, _rate_name(_slot(now))] += len(outcomes)


def recent_answers(run: sa.ColumnElement[int], now: float) -> sa.ColumnElement[bool]:
    """Whether a run got an answer in about the last two minutes: housekeeping keeps no more."""
    since = _rate_name(_slot(now) - 2 * SLOTS)
    recent = sa.and_(figures.c.run == run, figures.c.name >= since, figures.c.name < RATE_END)
    return sa.exists().where(recent).correlate_except(figures)


def _slot(now: float) -> int:
    return int(now // SLOT)


def _rate_name(slot: int) -> str:
    # Fixed width, so that names sort like numbers.
    return f"{RATE}{slot:012d}"


def _figures(counts: Mapping[str, int], since: float, now: float) -> RunFigures:
    first = _slot(now) - SLOTS + 1
    recent = sum(n for name, n in counts.items() if name >= _rate_name(first) and name[:5] == RATE)
    seconds = max(now - max(first * SLOT, since), 1.0)
    return RunFigures(
        answers=sum(_named(counts, AGENT).values()),
        rate=round(recent / seconds, 3),
        received=counts.get(RECEIVED, 0),
        sent=counts.get(SENT, 0),
        statuses=_named(counts, STATUS),
        failures=_named(counts, FAILURE),
        agents=_named(counts, AGENT),
    )


def _named(counts: Mapping[str, int], prefix: str) -> dict[str, int]:
    found = {name.removeprefix(prefix): n for name, n in counts.items() if name.startswith(prefix)}
    return dict(sorted(found.items()))
