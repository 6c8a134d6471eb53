"""Checkpoints of a run's driver: pages, items, requests. Implements `CheckpointStore`.

Run by centers only. A checkpoint is one transaction under the driver's token, which stays locked
meanwhile: checkpoints of one run happen one after the other, over all centers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa

from skep.model.request import Work
from skep.model.states import FINAL_STATES, RequestState, RunState
from skep.store.ports.checkpoints import (
    CheckpointResult,
    DriverRequests,
    ItemRow,
    KeptItem,
    UnreadBlock,
    UnreadPage,
)
from skep.store.ports.requests import RequestRow
from skep.store.sql.blocks.rows import works_of
from skep.store.sql.engine.database import Database, Tx
from skep.store.sql.engine.dialect import id_list
from skep.store.sql.engine.predicates import ENDED_BLOCKS, FINISHED_BLOCKS, in_list
from skep.store.sql.requests.requests import accept_rows
from skep.store.sql.runs import drivers as driving
from skep.store.sql.runs.runs import hold_run, number_of
from skep.store.sql.schema.blocks import blocks
from skep.store.sql.schema.runs import items

_ITEM_COLUMNS = ("run", "request", "n", "data", "at")
_STATES = {int(state): state.name.lower() for state in RequestState}
_FINAL = id_list(FINAL_STATES)


class SqlCheckpoints:
    """Rows of `drivers` and `items`, and blocks marked as collected."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def take_over(self, run_id: str, patience: float = 0.0, now: float = 0.0) -> int:
        return await self._database.write(lambda tx: driving.take_over(tx, run_id, patience, now))

    async def orders(self, run_id: str) -> DriverRequests:
        return await self._database.read(lambda c: driving.orders(c, run_id))

    async def ask(self, run_id: str, what: str) -> None:
        await self._database.write(lambda tx: driving.ask(tx, run_id, what))

    async def end(self, run_id: str, driver: int, to: RunState, reason: str, now: float) -> None:
        await self._database.write(lambda tx: driving.end(tx, run_id, driver, to, reason, now))

    async def give_up_silent(self, now: float) -> list[str]:
        found = await self._database.read(lambda c: driving.silent(c, now))
        # Most checks find none, so read before writing.
        return [run for run in found if await self._given_up(run, now)]

    async def _given_up(self, run_id: str, now: float) -> bool:
        return await self._database.write(lambda tx: driving.give_up(tx, run_id, now))

    async def unread(self, run_id: str, limit: int, taken: Sequence[int]) -> list[UnreadBlock]:
        def work(connection: sa.Connection) -> list[UnreadBlock]:
            run = number_of(connection, run_id)
            query = sa.select(blocks.c.id).where(FINISHED_BLOCKS, blocks.c.run == run)
            if taken:
                query = query.where(~in_list(blocks.c.id, taken))
            found = list(connection.execute(query.order_by(blocks.c.id).limit(limit)).scalars())
            return _pages(connection, found) if found else []

        return await self._database.read(work)

    async def ended(
        self, run_id: str, after: int, limit: int, *, collected: bool
    ) -> list[UnreadBlock]:
        def work(connection: sa.Connection) -> list[UnreadBlock]:
            run = number_of(connection, run_id)
            query = sa.select(blocks.c.id).where(blocks.c.run == run, ENDED_BLOCKS)
            query = query.where(blocks.c.id > after)
            if collected:
                query = query.where(blocks.c.collected == 1)
            found = list(connection.execute(query.order_by(blocks.c.id).limit(limit)).scalars())
            return _pages(connection, found) if found else []

        return await self._database.read(work)

    async def checkpoint(
        self,
        run_id: str,
        driver: int,
        blocks: Sequence[int],
        items: Sequence[ItemRow],
        rows: Sequence[RequestRow],
        now: float,
    ) -> CheckpointResult:
        def work(tx: Tx) -> CheckpointResult:
            run = hold_run(tx, run_id)
            driving.check_driver(tx, run.no, driver, now)
            accepted = accept_rows(tx, run, rows, now)
            kept = _keep_items(tx, run.no, items, now)
            _collect(tx, run.no, blocks)
            return CheckpointResult(accepted, kept)

        return await self._database.write(work)

    async def items(self, run_id: str, after: int, limit: int) -> list[KeptItem]:
        def work(connection: sa.Connection) -> list[KeptItem]:
            run = number_of(connection, run_id)
            query = sa.select(items.c.id, items.c.request, items.c.data).where(items.c.run == run)
            query = query.where(items.c.id > after).order_by(items.c.id).limit(limit)
            return [KeptItem(*row) for row in connection.execute(query)]

        return await self._database.read(work)

    async def items_of(self, run_id: str, request_ids: Sequence[int]) -> list[KeptItem]:
        if not request_ids:
            return []

        def work(connection: sa.Connection) -> list[KeptItem]:
            run = number_of(connection, run_id)
            query = sa.select(items.c.id, items.c.request, items.c.data).where(
                in_list(items.c.request, request_ids), items.c.run == run
            )
            return [KeptItem(*row) for row in connection.execute(query.order_by(items.c.id))]

        return await self._database.read(work)

    async def count(self, run_id: str) -> int:
        def work(connection: sa.Connection) -> int:
            run = number_of(connection, run_id)
            query = sa.select(sa.func.count()).select_from(items).where(items.c.run == run)
            return int(connection.execute(query).scalar_one())

        return await self._database.read(work)


def _keep_items(tx: Tx, run: int, found: Sequence[ItemRow], now: float) -> int:
    rows = [(run, item.request, item.n, item.data, now) for item in found]
    return tx.dialect.insert_new(tx.connection, items, _ITEM_COLUMNS, rows)


def _collect(tx: Tx, run: int, block_ids: Sequence[int]) -> None:
    if not block_ids:
        return
    wanted = in_list(blocks.c.id, block_ids)
    change = sa.update(blocks).where(wanted, blocks.c.run == run, FINISHED_BLOCKS)
    tx.execute(change.values(collected=1))


def _pages(connection: sa.Connection, block_ids: list[int]) -> list[UnreadBlock]:
    works = works_of(connection, block_ids)
    ended = _ended(connection, block_ids, [w.id for found in works.values() for w in found])
    return [
        UnreadBlock(
            block,
            [_page(work, ended[work.id]) for work in works.get(block, ()) if work.id in ended],
        )
        for block in block_ids
    ]


def _ended(
    connection: sa.Connection, block_ids: list[int], request_ids: list[int]
) -> dict[int, tuple[Any, ...]]:
    """The outcomes of the requests that ended in these blocks."""
    rows = connection.exec_driver_sql(
        "SELECT r.id, r.state, a.status, a.failure, a.detail, a.final_uri, a.elapsed_us,"  # noqa: S608
        " a.segment, a.offset, a.length FROM requests r"
        " LEFT JOIN attempts a ON a.request = r.id AND a.block = r.block"
        f" WHERE r.id IN ({id_list(request_ids)}) AND r.block IN ({id_list(block_ids)})"
        f" AND r.state IN ({_FINAL}) ORDER BY r.id, a.token"
    )
    # A request has one row for each lease in which it was reported; the last one decides.
    return {row[0]: tuple(row) for row in rows}


def _page(work: Work, row: tuple[Any, ...]) -> UnreadPage:
    _, state, status, failure, detail, final_uri, elapsed, segment, offset, length = row
    return UnreadPage(
        work.id,
        work.uri,
        _STATES[state],
        status or 0,
        failure or "",
        detail or "",
        work.meta,
        final_uri or "",
        elapsed or 0,
        segment or "",
        offset or 0,
        length or 0,
    )
