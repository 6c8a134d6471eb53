"""The ledger from the running counts, and counted row by row. Implements `Ledgers`.

The two are independent on purpose: a change without its tally, or a row that no state explains,
shows as a difference. Rows that retention deletes are counted separately at their deletion, and
are in both. Run by centers only.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

import sqlalchemy as sa

from skep.model.ledger import Ledger
from skep.model.states import CLAIMABLE, BlockState, RequestState
from skep.store.sql.engine.database import ACCEPTED, FORGOTTEN, Database
from skep.store.sql.runs.runs import number_of
from skep.store.sql.schema.blocks import blocks
from skep.store.sql.schema.requests import requests, tallies


class SqlLedgers:
    """Reads `tallies`, `requests` and `blocks`; writes nothing."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def read(self, run_id: str | None = None) -> Ledger:
        def work(connection: sa.Connection) -> Ledger:
            query = sa.select(tallies.c.state, sa.func.sum(tallies.c.n)).group_by(tallies.c.state)
            if run_id is not None:
                query = query.where(tallies.c.run == number_of(connection, run_id))
            counts = {state: int(n) for state, n in connection.execute(query)}
            return _ledger(counts.pop(ACCEPTED, 0), counts)

        return await self._database.read(work)

    async def audit(self, run_id: str | None = None) -> Ledger:
        def work(connection: sa.Connection) -> Ledger:
            gone = sa.select(tallies.c.state, sa.func.sum(tallies.c.n))
            gone = gone.where(tallies.c.state >= FORGOTTEN).group_by(tallies.c.state)
            query = (
                sa.select(requests.c.state, blocks.c.state, sa.func.count())
                .outerjoin(blocks, blocks.c.id == requests.c.block)
                .group_by(requests.c.state, blocks.c.state)
            )
            if run_id is not None:
                number = number_of(connection, run_id)
                query, gone = (
                    query.where(requests.c.run == number),
                    gone.where(tallies.c.run == number),
                )
            return _count(connection.execute(query).all(), connection.execute(gone).all())

        return await self._database.read(work)


def _count(rows: Any, gone: Any) -> Ledger:
    """From existing rows, and from the counts of deleted rows."""
    counts: Counter[int] = Counter({state: int(n) for state, n in gone})
    counts.update({state - FORGOTTEN: int(n) for state, n in gone})
    accepted = sum(int(n) for _, n in gone)
    for state, block_state, n in rows:
        accepted += n
        where = _really(state, block_state)
        if where is not None:
            counts[where] += n
    return _ledger(accepted, counts)


def _really(state: int, block_state: int | None) -> int | None:
    """The state of a row; None when its block has ended and the row has not: a lost request."""
    if state != RequestState.QUEUED:
        return state
    if block_state == BlockState.USING:
        return RequestState.LEASED
    return RequestState.QUEUED if block_state in CLAIMABLE else None


def _ledger(accepted: int, counts: Mapping[int, int]) -> Ledger:
    gone = sum(counts.get(FORGOTTEN + state, 0) for state in RequestState)
    by_state = {state.name.lower(): counts.get(state, 0) for state in RequestState}
    return Ledger(accepted, **by_state, forgotten=gone)
