"""Agents and their heartbeats. Implements `Agents`; run by centers only."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec
import sqlalchemy as sa

from skep.errors import InvalidInput, UnknownAgent
from skep.model.fleet.agent import AgentView, Arrival, Order, Registration, Vitals
from skep.store.ports.agents import VitalsByAgent
from skep.store.sql.agents.commands import (
    acknowledge_commands,
    add_command,
    end_commands,
    list_commands,
)
from skep.store.sql.agents.heartbeats import write_heartbeats
from skep.store.sql.agents.sessions import is_late, new_session
from skep.store.sql.engine.database import Database, Tx
from skep.store.sql.schema.agents import agents, center_keys, heartbeats

#: Maximum labels that users can set on one agent.
LABELS_LIMIT = 64
#: Commands that end a process; the registration of a new process completes them.
ENDINGS = ("exit", "restart")
_registration = msgspec.msgpack.Decoder(Registration)
_vitals = msgspec.msgpack.Decoder(Vitals)
_labels = msgspec.msgpack.Decoder(dict[str, str | None])
_COLUMNS = ("id", "registration", "enabled", "registered_at", "seen_at", "vitals")

#: Name of the secret for agents' files.
_OF_FILES = "agent files"


class SqlAgents:
    """Rows of `agents`, `agent_orders` and `heartbeats`."""

    def __init__(self, database: Database) -> None:
        self._database = database
        #: The last registrations that were read: centers read all agents every second, and few
        #: registrations change.
        self._described: dict[bytes, Registration] = {}

    async def files_secret(self, fresh: bytes) -> bytes:
        query = sa.select(center_keys.c.value).where(center_keys.c.name == _OF_FILES)

        def work(tx: Tx) -> bytes:
            row = [(_OF_FILES, fresh)]
            tx.dialect.insert_new(tx.connection, center_keys, ("name", "value"), row)
            return bytes(tx.execute(query).scalar_one())

        return await self._database.write(work)

    async def register(
        self, registration: Registration, now: float, arrival: Arrival | None = None
    ) -> AgentView:
        packed = msgspec.msgpack.encode(registration)
        row = (registration.id, packed, 1, now, now, msgspec.msgpack.encode(Vitals()))
        came = arrival or Arrival()

        def work(tx: Tx) -> AgentView:
            tx.dialect.insert_new(tx.connection, agents, _COLUMNS, [row])
            found = _locked(tx, registration.id)
            if is_late(found, came):
                return view_of(found)
            values = {"registration": packed, "registered_at": now, "seen_at": now}
            values["changed_at"] = now
            values |= (session := new_session(found, came, now))
            if came.bound:
                values["bound"] = 1
            tx.execute(_update(registration.id).values(**values))
            if session["session"] != found.session:
                end_commands(tx, registration.id, ENDINGS, now, "a new process registered")
            return _get(tx.connection, registration.id)

        return await self._database.write(work)

    async def heartbeat(
        self, beats: VitalsByAgent, now: float, sessions: Mapping[str, int] | None = None
    ) -> list[str]:
        known = sessions or {}
        return await self._database.write(
            lambda tx: write_heartbeats(tx, beats, now, known), quick=True
        )

    async def all(self) -> list[AgentView]:
        query = sa.select(agents)
        views = await self._database.read(lambda c: self._views(c.execute(query)))
        return sorted(views, key=lambda view: (view.registration.name, view.id))

    async def news(self, since: float, silent: float, ahead: float) -> list[AgentView]:
        new = sa.or_(
            agents.c.changed_at >= since, agents.c.seen_at <= silent, agents.c.seen_at >= ahead
        )
        query = sa.select(agents).where(new)
        return await self._database.read(lambda c: [view_of(row) for row in c.execute(query)])

    def _views(self, rows: Iterable[Any]) -> list[AgentView]:
        known, seen = self._described, {}
        views = []
        for row in rows:
            packed = bytes(row.registration)
            about = seen[packed] = known.get(packed) or _registration.decode(packed)
            views.append(view_of(row, about))
        self._described = seen
        return views

    async def get(self, agent_id: str) -> AgentView:
        return await self._database.read(lambda connection: _get(connection, agent_id))

    async def enable(
        self, agent_id: str, enabled: bool, aside: str = "", now: float = 0.0
    ) -> AgentView:
        def work(tx: Tx) -> AgentView:
            _locked(tx, agent_id)
            values = {"enabled": int(enabled), "aside": aside or None, "changed_at": now}
            tx.execute(_update(agent_id).values(**values))
            if aside != "draining":
                end_commands(tx, agent_id, ("drain",), now, "withdrawn")
            return _get(tx.connection, agent_id)

        return await self._database.write(work)

    async def label(
        self, agent_id: str, changes: Mapping[str, str | None], now: float
    ) -> AgentView:
        def work(tx: Tx) -> AgentView:
            known = view_of(_locked(tx, agent_id)).labels
            labels = {**known, **changes}
            if len(labels) > LABELS_LIMIT:
                raise InvalidInput(f"an agent can have at most {LABELS_LIMIT} labels set by users")
            packed = msgspec.msgpack.encode(labels)
            tx.execute(_update(agent_id).values(labels=packed, changed_at=now))
            return _get(tx.connection, agent_id)

        return await self._database.write(work)

    async def command(self, agent_id: str, name: str, now: float) -> Order:
        def work(tx: Tx) -> Order:
            _locked(tx, agent_id)
            return add_command(tx, agent_id, name, now)

        return await self._database.write(work)

    async def commands(self, agent_id: str, limit: int = 20) -> list[Order]:
        return await self._database.read(lambda c: list_commands(c, agent_id, limit))

    async def acknowledged(self, agent_id: str, no: int, now: float) -> None:
        def work(tx: Tx) -> None:
            _locked(tx, agent_id)
            acknowledge_commands(tx, agent_id, no, now)

        await self._database.write(work)

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


def _locked(tx: Tx, agent_id: str) -> Any:
    """Locks the agent and its commands until the end of the transaction."""
    query = sa.select(agents).where(agents.c.id == agent_id).with_for_update()
    return _there(tx.execute(query).first(), agent_id)


def _get(connection: sa.Connection, agent_id: str) -> AgentView:
    query = sa.select(agents).where(agents.c.id == agent_id)
    return view_of(_there(connection.execute(query).first(), agent_id))


def _there(row: Any, agent_id: str) -> Any:
    if row is None:
        raise UnknownAgent(f"there is no agent {agent_id!r}; it must register first")
    return row


def view_of(row: Any, about: Registration | None = None) -> AgentView:
    """A row of `agents` as data."""
    registration = about or _registration.decode(row.registration)
    labels = _labels.decode(row.labels) if row.labels else {}
    if labels:
        merged = {**registration.labels, **labels}
        kept = {name: value for name, value in merged.items() if value is not None}
        registration = msgspec.structs.replace(registration, labels=kept)
    return AgentView(
        registration,
        bool(row.enabled),
        row.registered_at,
        row.seen_at,
        _vitals.decode(row.vitals),
        row.session or 0,
        row.aside or "",
        labels,
        bool(row.pending),
        bool(row.bound),
    )
