"""Writes the heartbeats of many agents at once. Run by centers only.

Agents send heartbeats all the time: on PostgreSQL one statement writes all heartbeats that
arrived at nearly the same time. Other databases need three statements.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
import sqlalchemy as sa

from skep.store.ports.agents import VitalsByAgent
from skep.store.sql.engine.database import Tx
from skep.store.sql.schema.agents import agents, heartbeats

_ON_POSTGRES = """
WITH come (id, vitals, session) AS (
  SELECT * FROM unnest(%s::text[], %s::bytea[], %s::bigint[])
), beaten AS (
  UPDATE agents SET seen_at = %s, vitals = come.vitals FROM come
  WHERE agents.id = come.id
    AND (come.session = 0 OR agents.session IS NULL OR agents.session <= come.session)
  RETURNING agents.id, agents.vitals
)
INSERT INTO heartbeats (agent, at, vitals) SELECT id, %s, vitals FROM beaten RETURNING agent
"""
_SEEN = (
    sa.update(agents)
    .where(agents.c.id == sa.bindparam("agent"))
    .values(seen_at=sa.bindparam("now"), vitals=sa.bindparam("packed"))
)


def write_heartbeats(
    tx: Tx, beats: VitalsByAgent, now: float, sessions: Mapping[str, int]
) -> list[str]:
    """Returns agents that are not known, or whose newest process is another one."""
    ordered = sorted(beats, key=lambda beat: beat[0])
    packed = {agent: msgspec.msgpack.encode(vitals) for agent, vitals in ordered}
    if tx.dialect.feeds_statements:
        known = _on_postgres(tx, packed, now, sessions)
    else:
        known = _by_hand(tx, packed, now, sessions)
    return sorted(packed.keys() - known)


def _on_postgres(
    tx: Tx, packed: Mapping[str, bytes], now: float, sessions: Mapping[str, int]
) -> set[str]:
    under = [sessions.get(agent, 0) for agent in packed]
    values = (list(packed), list(packed.values()), under, now, now)
    return {row[0] for row in tx.connection.exec_driver_sql(_ON_POSTGRES, values)}


def _by_hand(
    tx: Tx, packed: Mapping[str, bytes], now: float, sessions: Mapping[str, int]
) -> set[str]:
    # Sorted, so that two centers do not deadlock.
    query = sa.select(agents.c.id, agents.c.session).where(agents.c.id.in_(list(packed)))
    rows = tx.execute(query.order_by(agents.c.id).with_for_update()).all()
    known = [row.id for row in rows if not 0 < sessions.get(row.id, 0) < (row.session or 0)]
    if known:
        tx.execute(_SEEN, [{"agent": a, "now": now, "packed": packed[a]} for a in known])
    history = [(agent, now, packed[agent]) for agent in known]
    tx.dialect.insert_many(tx.connection, heartbeats, ("agent", "at", "vitals"), history)
    return set(known)
