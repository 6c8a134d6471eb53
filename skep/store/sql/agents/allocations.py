"""Allocations: which agents were chosen for a run. Implements `Allocations`; centers only.

An allocation is written once for a run; repeated calls return it. Changes store a reason.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec
import sqlalchemy as sa

from skep.model.run import RunSettings
from skep.model.states import RunState
from skep.store.ports.placement import Allocation, AllocationSlot, Wanted
from skep.store.sql.blocks.pack_placement import sessions_of
from skep.store.sql.blocks.unpack import unpack_targets
from skep.store.sql.engine.database import Database, Tx
from skep.store.sql.engine.predicates import CLAIMABLE_BLOCKS, in_list
from skep.store.sql.requests.chains import belonging, rejoin, restart_chains
from skep.store.sql.runs.runs import OVER, hold_run, number_of
from skep.store.sql.schema.allocations import allocation_agents, allocations
from skep.store.sql.schema.blocks import blocks
from skep.store.sql.schema.requests import requests
from skep.store.sql.schema.runs import runs

_COLUMNS = ("run", "strategy", "at")
_SLOTS = ("run", "agent", "slot", "since", "why")
_ENDED = tuple(str(state) for state in OVER)
_settings = msgspec.msgpack.Decoder(RunSettings)


class SqlAllocations:
    """Rows of `allocations` and `allocation_agents`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def allocate(self, run_id: str, agents: Sequence[str], now: float) -> Allocation:
        def work(tx: Tx) -> Allocation:
            run = hold_run(tx, run_id)
            row = (run.no, run.rules.placement.strategy, now)
            if tx.dialect.insert_new(tx.connection, allocations, _COLUMNS, [row]):
                seats = [(run.no, agent, slot, now, "") for slot, agent in enumerate(agents)]
                tx.dialect.insert_many(tx.connection, allocation_agents, _SLOTS, seats)
            else:
                mine = sa.update(allocations).where(allocations.c.run == run.no)
                tx.execute(mine.values(released_at=None))
            (found,) = _read(tx.connection, allocations.c.run == run.no)
            return found

        return await self._database.write(work)

    async def get(self, run_id: str) -> Allocation | None:
        def work(connection: sa.Connection) -> Allocation | None:
            wanted = allocations.c.run == number_of(connection, run_id)
            return next(iter(_read(connection, wanted)), None)

        return await self._database.read(work)

    async def open(self) -> list[Allocation]:
        return await self._database.read(lambda c: _read(c, allocations.c.released_at.is_(None)))

    async def of_agent(self, agent: str, limit: int) -> list[Allocation]:
        mine = sa.select(allocation_agents.c.run).where(allocation_agents.c.agent == agent)

        def work(connection: sa.Connection) -> list[Allocation]:
            newest = mine.order_by(allocation_agents.c.run.desc()).limit(limit)
            numbers = list(connection.execute(newest).scalars())
            return _read(connection, _states_in(numbers))[::-1] if numbers else []

        return await self._database.read(work)

    async def ended(self, limit: int) -> list[Allocation]:
        query = (
            sa.select(allocations.c.run)
            .join(runs, runs.c.no == allocations.c.run)
            .where(allocations.c.released_at.is_(None), runs.c.state.in_(_ENDED))
            .order_by(allocations.c.run)
            .limit(limit)
        )

        def work(connection: sa.Connection) -> list[Allocation]:
            found = list(connection.execute(query).scalars())
            return _read(connection, _states_in(found)) if found else []

        return await self._database.read(work)

    async def release(self, run_ids: Sequence[str], now: float) -> list[Allocation]:
        query = sa.select(runs.c.no).where(runs.c.id.in_(run_ids), runs.c.state.in_(_ENDED))

        def work(tx: Tx) -> list[Allocation]:
            # The runs are locked: one that is continued meanwhile keeps its agents.
            ended = list(tx.execute(query.order_by(runs.c.no).with_for_update(read=True)).scalars())
            return _read(tx.connection, _states_in([no for no in ended if _release(tx, no, now)]))

        return await self._database.write(work) if run_ids else []

    async def replace(self, run_id: str, gone: str, to: str, why: str, now: float) -> bool:
        return await self._database.write(lambda tx: _replace(tx, run_id, gone, to, why, now))

    async def belonging(self, run_id: str, agent: str) -> int:
        return await self._database.read(lambda c: belonging(c, number_of(c, run_id), agent))

    async def targets(self) -> list[str]:
        query = sa.select(blocks.c.target).where(CLAIMABLE_BLOCKS, blocks.c.target != "")
        return await self._database.read(lambda c: list(c.execute(query.distinct()).scalars()))

    async def unpack(self, targets: Sequence[str], now: float, limit: int) -> list[int]:
        if not targets:
            return []
        return await self._database.write(lambda tx: unpack_targets(tx, targets, now, limit))

    async def restart_chains(self, run_id: str, gone: str, to: str, now: float) -> int:
        return await self._database.write(
            lambda tx: restart_chains(tx, hold_run(tx, run_id), gone, to, now)
        )

    async def rejoin(self, run_id: str) -> list[int]:
        return await self._database.write(lambda tx: rejoin(tx, hold_run(tx, run_id)))

    async def sample(self, run_id: str, limit: int) -> list[Wanted]:
        def work(connection: sa.Connection) -> list[Wanted]:
            run = number_of(connection, run_id)
            query = sa.select(requests.c.id, requests.c.uri, requests.c.host)
            query = query.where(requests.c.run == run).order_by(requests.c.id.desc())
            rows = connection.execute(query.limit(limit)).all()
            sessions = sessions_of(connection, [row.id for row in rows])
            return [Wanted(row.uri, row.host, sessions.get(row.id, "")) for row in rows]

        return await self._database.read(work)


def _states_in(numbers: Iterable[int]) -> sa.ColumnElement[bool]:
    return in_list(allocations.c.run, numbers)


def _read(connection: sa.Connection, wanted: sa.ColumnElement[bool]) -> list[Allocation]:
    query = (
        sa.select(allocations, runs.c.id.label("run_id"), runs.c.state, runs.c.settings)
        .join(runs, runs.c.no == allocations.c.run)
        .where(wanted)
        .order_by(allocations.c.run)
    )
    rows = connection.execute(query).all()
    seats = _slots(connection, [row.run for row in rows])
    return [
        Allocation(
            row.run_id,
            row.run,
            RunState(row.state),
            _settings.decode(row.settings),
            row.at,
            seats.get(row.run, []),
            row.released_at,
        )
        for row in rows
    ]


def _slots(connection: sa.Connection, numbers: list[int]) -> dict[int, list[AllocationSlot]]:
    if not numbers:
        return {}
    wanted = in_list(allocation_agents.c.run, numbers)
    order = (allocation_agents.c.slot, allocation_agents.c.since)
    found: dict[int, list[AllocationSlot]] = {}
    for row in connection.execute(sa.select(allocation_agents).where(wanted).order_by(*order)):
        seat = AllocationSlot(row.agent, row.slot, row.since, row.until, row.why)
        found.setdefault(row.run, []).append(seat)
    return found


def _release(tx: Tx, number: int, now: float) -> bool:
    mine = sa.and_(allocations.c.run == number, allocations.c.released_at.is_(None))
    return bool(tx.execute(sa.update(allocations).where(mine).values(released_at=now)).rowcount)


def _replace(tx: Tx, run_id: str, gone: str, to: str, why: str, now: float) -> bool:
    run = hold_run(tx, run_id)
    mine = sa.and_(allocation_agents.c.run == run.no, allocation_agents.c.agent == gone)
    seat: Any = tx.execute(
        sa.select(allocation_agents)
        .where(mine, allocation_agents.c.until.is_(None))
        .with_for_update()
    ).first()
    if seat is None:
        return False
    tx.execute(sa.update(allocation_agents).where(mine).values(until=now, why=why))
    row = (run.no, to, seat.slot, now, "")
    if not tx.dialect.insert_new(tx.connection, allocation_agents, _SLOTS, [row]):
        # It was replaced before and returns, or has a slot already, which it keeps.
        again = sa.update(allocation_agents).where(
            allocation_agents.c.run == run.no,
            allocation_agents.c.agent == to,
            allocation_agents.c.until.is_not(None),
        )
        tx.execute(again.values(until=None, why="", since=now, slot=seat.slot))
    return True
