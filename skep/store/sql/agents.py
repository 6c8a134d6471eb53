"""Agents and their heartbeats. Answers `Agents`; run by centers only."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import sqlalchemy as sa

from skep.errors import UnknownAgent
from skep.model.agent import AgentView, Registration, Vitals
from skep.store.sql.database import Database, Tx
from skep.store.sql.tables import agents, heartbeats

_registration = msgspec.msgpack.Decoder(Registration)
_vitals = msgspec.msgpack.Decoder(Vitals)
_COLUMNS = ("id", "registration", "enabled", "registered_at", "seen_at", "vitals")


class SqlAgents:
    """Rows of `agents` and `heartbeats`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def register(self, registration: Registration, now: float) -> AgentView:
        packed = msgspec.msgpack.encode(registration)
        row = (registration.id, packed, 1, now, now, msgspec.msgpack.encode(Vitals()))

        def work(tx: Tx) -> AgentView:
            if tx.dialect.insert_new(tx.connection, agents, _COLUMNS, [row]) == 0:
                values = {"registration": packed, "registered_at": now, "seen_at": now}
                tx.execute(_update(registration.id).values(**values))
            return _get(tx.connection, registration.id)

        return await self._database.write(work)

    async def beat(self, beats: Sequence[tuple[str, Vitals]], now: float) -> list[str]:
        def work(tx: Tx) -> list[str]:
            # Sorted, so that two centers take the row locks in the same order.
            ordered = sorted(beats, key=lambda beat: beat[0])
            unknown = {agent for agent, vitals in ordered if not _beat(tx, agent, vitals, now)}
            rows = [(a, now, msgspec.msgpack.encode(v)) for a, v in beats if a not in unknown]
            columns = ("agent", "at", "vitals")
            tx.dialect.insert_many(tx.connection, heartbeats, columns, rows)
            return sorted(unknown)

        return await self._database.write(work)

    async def all(self) -> list[AgentView]:
        query = sa.select(agents)
        views = await self._database.read(lambda c: [_view(row) for row in c.execute(query)])
        return sorted(views, key=lambda view: (view.registration.name, view.id))

    async def enable(self, agent_id: str, enabled: bool) -> AgentView:
        def work(tx: Tx) -> AgentView:
            tx.execute(_update(agent_id).values(enabled=int(enabled)))
            return _get(tx.connection, agent_id)

        return await self._database.write(work)

    async def vitals(self, agent_id: str, since: float) -> list[tuple[float, Vitals]]:
        query = (
            sa.select(heartbeats.c.at, heartbeats.c.vitals)
            .where(heartbeats.c.agent == agent_id, heartbeats.c.at >= since)
            .order_by(heartbeats.c.at)
        )
        rows = await self._database.read(lambda c: c.execute(query).all())
        return [(row.at, _vitals.decode(row.vitals)) for row in rows]

    async def forget_vitals(self, before: float) -> int:
        old = sa.delete(heartbeats).where(heartbeats.c.at < before)
        return await self._database.write(lambda tx: int(tx.execute(old).rowcount))


def _update(agent_id: str) -> sa.Update:
    return sa.update(agents).where(agents.c.id == agent_id)


def _beat(tx: Tx, agent: str, vitals: Vitals, now: float) -> bool:
    values = {"seen_at": now, "vitals": msgspec.msgpack.encode(vitals)}
    return tx.execute(_update(agent).values(**values)).rowcount == 1


def _get(connection: sa.Connection, agent_id: str) -> AgentView:
    row = connection.execute(sa.select(agents).where(agents.c.id == agent_id)).first()
    if row is None:
        raise UnknownAgent(f"there is no agent {agent_id!r}; it must register first")
    return _view(row)


def _view(row: Any) -> AgentView:
    return AgentView(
        _registration.decode(row.registration),
        bool(row.enabled),
        row.registered_at,
        row.seen_at,
        _vitals.decode(row.vitals),
    )
