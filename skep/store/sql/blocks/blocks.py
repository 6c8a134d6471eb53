"""Leases, renews, returns, reclaims and collects blocks. Implements `Blocks`.

Run by centers only. A lease is valid if and only if the row here says so.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import sqlalchemy as sa

from skep.model.block import (
    BlockChange,
    BlockRef,
    BlockView,
    FinishedBlock,
    FinishedRequest,
    Held,
    Leased,
)
from skep.model.hosts.politeness import Politeness
from skep.model.request import Work
from skep.model.states import CLAIMABLE, FINAL_STATES, BlockState, RequestState, RunState
from skep.model.unknown_objects import unknown_block
from skep.store.ports.blocks import Freed, Settlement, SettleResult
from skep.store.sql.blocks.expire_leased import expire_leased
from skep.store.sql.blocks.reclaim import take_back
from skep.store.sql.blocks.renewals import renew_all
from skep.store.sql.blocks.rows import (
    bodies_of,
    close_block,
    ids_in,
    note_history,
    open_members,
    works_of,
)
from skep.store.sql.blocks.settle import settle_all
from skep.store.sql.engine.database import Database, Tx
from skep.store.sql.engine.dialect import id_list
from skep.store.sql.engine.predicates import (
    CLAIMABLE_BLOCKS,
    FINISHED_BLOCKS,
    USING_BLOCKS,
    in_list,
    written_out,
)
from skep.store.sql.hosts.single_request_holds import must_wait
from skep.store.sql.runs.answer_deadlines import answer_by
from skep.store.sql.runs.runs import hold_runs, number_of
from skep.store.sql.schema.blocks import block_history, blocks
from skep.store.sql.schema.requests import attempts, requests
from skep.store.sql.schema.runs import runs

#: More blocks than one agent can hold.
ALL = 100_000


class SqlBlocks:
    """Rows of `blocks`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def lease(
        self,
        block_ids: Sequence[int],
        agent: str,
        now: float,
        until: float,
        politeness: Politeness | None = None,
    ) -> list[Leased]:
        if not block_ids:
            return []
        return await self._database.write(
            lambda tx: _lease(tx, block_ids, agent, now, until, politeness)
        )

    async def renew(self, held: Sequence[Held], agent: str, until: float) -> list[int]:
        [lost] = await self.renew_many([(agent, held)], until)
        return lost

    async def renew_many(
        self, asks: Sequence[tuple[str, Sequence[Held]]], until: float
    ) -> list[list[int]]:
        if not any(held for _, held in asks):
            return [[] for _ in asks]
        return await self._database.write(lambda tx: renew_all(tx, asks, until), quick=True)

    async def owned(self, held: Sequence[Held], agent: str) -> set[Held]:
        query = sa.select(blocks.c.id, blocks.c.token).where(
            in_list(blocks.c.id, (item.block for item in held)),
            USING_BLOCKS,
            blocks.c.agent == agent,
        )
        rows = await self._database.read(lambda c: c.execute(query).all())
        return {Held(row.id, row.token) for row in rows}.intersection(held)

    async def settle(
        self, settlements: Sequence[Settlement], now: float, politeness: Politeness | None = None
    ) -> list[SettleResult]:
        if not settlements:
            return []
        kept = politeness or Politeness()
        return await self._database.write(lambda tx: settle_all(tx, settlements, now, kept))

    async def give_back(
        self, held: Sequence[Held], agent: str, now: float, reason: str
    ) -> list[BlockRef]:
        if not held:
            return []
        return await self._database.write(lambda tx: _give_back(tx, held, agent, now, reason))

    async def leased(self, limit: int) -> list[tuple[str, Held]]:
        query = sa.select(blocks.c.agent, blocks.c.id, blocks.c.token).where(USING_BLOCKS)
        rows = await self._database.read(lambda c: c.execute(query.limit(limit)).all())
        return [(agent, Held(block, token)) for agent, block, token in rows]

    async def reap(
        self, now: float, dead_agents: Sequence[str], lease_limit: int, limit: int
    ) -> list[Freed]:
        def work(tx: Tx) -> list[Freed]:
            late = sa.or_(blocks.c.lease_until < now, blocks.c.agent.in_(dead_agents))
            return _take_back(tx, _in_hands(tx, late, limit), now, lease_limit)

        return await self._database.write(work)

    async def abandon(
        self, agent: str, holding: Sequence[Held], now: float, lease_limit: int
    ) -> list[Freed]:
        kept = {(item.block, item.token) for item in holding}

        def work(tx: Tx) -> list[Freed]:
            rows = _in_hands(tx, blocks.c.agent == agent, ALL)
            gone = [row for row in rows if (row.id, row.token) not in kept]
            return _take_back(tx, gone, now, lease_limit)

        return await self._database.write(work)

    async def claimable(self, limit: int, after: int = 0) -> list[BlockRef]:
        # State by state: with both at once SQLite would sort every claimable block.
        queries = [_claimable(state, limit, after) for state in CLAIMABLE]

        def work(connection: sa.Connection) -> list[BlockRef]:
            rows = [row for query in queries for row in connection.execute(query)]
            found = {row.id: BlockRef(*row) for row in rows}
            return [found[number] for number in sorted(found)[:limit]]

        return await self._database.read(work)

    async def still_claimable(self, block_ids: Sequence[int]) -> set[int]:
        if not block_ids:
            return set()
        query = (
            sa.select(blocks.c.id)
            .join(runs, runs.c.no == blocks.c.run)
            .where(in_list(blocks.c.id, block_ids))
            .where(CLAIMABLE_BLOCKS, runs.c.state == RunState.RUNNING)
        )
        return await self._database.read(lambda c: set(c.execute(query).scalars()))

    async def finished(self, run_id: str, limit: int) -> list[FinishedBlock]:
        def work(connection: sa.Connection) -> list[FinishedBlock]:
            run = number_of(connection, run_id)
            query = sa.select(blocks.c.id, blocks.c.agent).where(FINISHED_BLOCKS)
            query = query.where(blocks.c.run == run).order_by(blocks.c.id).limit(limit)
            rows = connection.execute(query).all()
            works = works_of(connection, [row.id for row in rows]) if rows else {}
            return [
                FinishedBlock(row.id, run_id, row.agent, _ended(connection, row.id, works[row.id]))
                for row in rows
            ]

        return await self._database.read(work)

    async def strange(self, run_id: str, block_ids: Sequence[int]) -> list[int]:
        def read(connection: sa.Connection) -> list[int]:
            run = number_of(connection, run_id)
            wanted = sa.and_(blocks.c.run == run, blocks.c.id.in_(block_ids))
            known = set(connection.execute(sa.select(blocks.c.id).where(wanted)).scalars())
            return [block for block in block_ids if block not in known]

        return await self._database.read(read)

    async def collect(self, run_id: str, block_ids: Sequence[int]) -> int:
        def work(tx: Tx) -> int:
            run = number_of(tx.connection, run_id)
            wanted = sa.and_(blocks.c.run == run, blocks.c.id.in_(block_ids), FINISHED_BLOCKS)
            return int(tx.execute(sa.update(blocks).where(wanted).values(collected=1)).rowcount)

        return await self._database.write(work)

    async def get(self, block_id: int) -> BlockView:
        query = (
            sa.select(blocks, runs.c.id.label("run_id"))
            .join(runs, runs.c.no == blocks.c.run)
            .where(blocks.c.id == block_id)
        )
        row = await self._database.read(lambda c: c.execute(query).first())
        if row is None:
            raise unknown_block(block_id)
        return _view(row)

    async def history(self, block_id: int) -> list[BlockChange]:
        query = sa.select(block_history).where(block_history.c.block == block_id)
        rows = await self._database.read(lambda c: c.execute(query.order_by("id")).all())
        return [BlockChange(BlockState(row.state), row.at, row.detail) for row in rows]


def _lease(
    tx: Tx,
    block_ids: Sequence[int],
    agent: str,
    now: float,
    until: float,
    politeness: Politeness | None,
) -> list[Leased]:
    # Blocks only, without their runs: MariaDB would lock and skip those too.
    query = (
        sa.select(blocks)
        .where(in_list(blocks.c.id, block_ids))
        .where(CLAIMABLE_BLOCKS)
        .order_by(blocks.c.id)
        .with_for_update(skip_locked=True)
    )
    ready = tx.execute(query).all()
    of = hold_runs(tx, {row.run for row in ready}) if ready else {}
    rows = {row.id: row for row in ready if of[row.run].running}
    if not rows:
        return []
    bodies = bodies_of(tx.connection, list(rows))
    over = {row.id: bodies[row.id] for row in rows.values() if _may_be_late(row, now)}
    late = expire_leased(tx, rows, over, now) if over else Counter[int]()
    rows = {block: row for block, row in rows.items() if row.open > late[block]}
    if politeness is not None:
        for block in must_wait(tx, rows, bodies, of, now, politeness):
            del rows[block]
    if not rows:
        return []
    _update_blocks(
        tx,
        rows,
        state=int(BlockState.USING),
        token=blocks.c.token + 1,
        agent=agent,
        lease_until=until,
        answer_by=_by_run(rows, {run: answer_by(held, now) for run, held in of.items()}),
    )
    note_history(tx, rows, BlockState.USING, now, f"leased to {agent}")
    for row in rows.values():
        tx.move(row.run, RequestState.QUEUED, RequestState.LEASED, row.open - late[row.id])
    wanted = [rows[block] for block in dict.fromkeys(block_ids) if block in rows]
    return [
        _leased(tx, row, of[row.run].id, bodies[row.id], begun=row.open - late[row.id] < row.size)
        for row in wanted
    ]


def _claimable(state: BlockState, limit: int, after: int) -> sa.Select[Any]:
    in_state = blocks.c.state == sa.literal_column(str(int(state)))
    return (
        sa.select(blocks.c.id, runs.c.id.label("run_id"), blocks.c.priority, blocks.c.open)
        .add_columns(blocks.c.target)
        .join(runs, runs.c.no == blocks.c.run)
        .where(in_state, CLAIMABLE_BLOCKS, blocks.c.id > after)
        .where(runs.c.state == RunState.RUNNING)
        .order_by(blocks.c.id)
        .limit(limit)
    )


def _by_run(rows: Mapping[int, Any], times: Mapping[int, float | None]) -> Any:
    """One value when all blocks are of one run, the usual case; else one for each run."""
    found = {row.run: times[row.run] for row in rows.values()}
    if len(set(found.values())) == 1:
        return next(iter(found.values()))
    return sa.case(*((blocks.c.run == run, when) for run, when in found.items()))


def _may_be_late(row: Any, now: float) -> bool:
    return row.expires_at is not None and row.expires_at <= now


def _leased(tx: Tx, row: Any, run_id: str, body: bytes, *, begun: bool) -> Leased:
    skip: list[int] = []
    if begun:
        still_open = open_members(tx.connection, row.id)
        skip = [number for number in ids_in(body) if number not in still_open]
    return Leased(row.id, row.token + 1, run_id, row.size, body, skip)


def _in_use(tx: Tx, held: Sequence[Held]) -> list[Any]:
    """Blocks among `held` that are leased, locked."""
    query = (
        sa.select(blocks)
        .where(in_list(blocks.c.id, (item.block for item in held)))
        .where(USING_BLOCKS)
        .order_by(blocks.c.id)
        .with_for_update()
    )
    return list(tx.execute(query))


def _held_by(tx: Tx, held: Sequence[Held], agent: str) -> dict[int, Any]:
    """Blocks among `held` that this agent holds under exactly these tokens."""
    tokens = {item.block: item.token for item in held}
    mine = (row for row in _in_use(tx, held) if row.agent == agent)
    return {row.id: row for row in mine if row.token == tokens[row.id]}


def _give_back(tx: Tx, held: Sequence[Held], agent: str, now: float, reason: str) -> list[BlockRef]:
    mine = _held_by(tx, held, agent)
    if not mine:
        return []
    detail = f"given back by {agent}: {reason}"
    of = hold_runs(tx, {row.run for row in mine.values()})
    again = {block: row for block, row in mine.items() if not of[row.run].ended}
    for block in mine.keys() - again.keys():
        # No agent will take it again, so it ends here.
        note = f"{detail}; the run was {of[mine[block].run].state}"
        close_block(tx, mine[block], RequestState.CANCELLED, now, note)
    if not again:
        return []
    _update_blocks(tx, again, state=int(BlockState.RETRY), agent="", lease_until=0.0)
    note_history(tx, again, BlockState.RETRY, now, detail)
    for row in again.values():
        tx.move(row.run, RequestState.LEASED, RequestState.QUEUED, row.open)
    return [
        BlockRef(row.id, of[row.run].id, row.priority, row.open, row.target)
        for row in again.values()
    ]


def _in_hands(tx: Tx, condition: sa.ColumnElement[bool], limit: int) -> list[Any]:
    """Leased blocks that match, locked."""
    query = sa.select(blocks).where(USING_BLOCKS, condition).order_by(blocks.c.id).limit(limit)
    return list(tx.execute(query.with_for_update(skip_locked=True)))


def _take_back(tx: Tx, rows: list[Any], now: float, lease_limit: int) -> list[Freed]:
    if not rows:
        return []
    of = hold_runs(tx, {row.run for row in rows})
    freed = (take_back(tx, row, of[row.run], now, lease_limit) for row in rows)
    return [item for items in freed for item in items]


def _update_blocks(tx: Tx, block_ids: Any, **values: Any) -> None:
    tx.execute(sa.update(blocks).where(in_list(blocks.c.id, block_ids)).values(**values))


def _ended(connection: sa.Connection, block: int, works: list[Work]) -> list[FinishedRequest]:
    """The requests of a block that have ended in it, with their outcomes."""
    ids = id_list(work.id for work in works)
    query = (
        sa.select(requests.c.id, requests.c.state, attempts)
        .outerjoin(
            attempts, sa.and_(attempts.c.request == requests.c.id, attempts.c.block == block)
        )
        .where(written_out(f"requests.id IN ({ids})"))
        .where(requests.c.block == block, requests.c.state.in_(FINAL_STATES))
        .order_by(requests.c.id, attempts.c.token)
    )
    # A request has one row for each lease in which it was reported; the last one decides.
    rows = {row.id: row for row in connection.execute(query)}
    return [_finished(rows[work.id], work) for work in works if work.id in rows]


def _finished(row: Any, work: Work) -> FinishedRequest:
    return FinishedRequest(
        work.id,
        work.uri,
        RequestState(row.state).name.lower(),
        row.status or 0,
        row.failure or "",
        row.detail or "",
        work.meta,
        row.final_uri or "",
    )


def _view(row: Any) -> BlockView:
    return BlockView(
        row.id,
        row.run_id,
        BlockState(row.state),
        row.priority,
        row.size,
        row.open,
        row.token,
        row.agent,
        row.lease_until,
        row.created_at,
    )
