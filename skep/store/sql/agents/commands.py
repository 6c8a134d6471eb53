"""Rows of `agent_orders`. The caller has locked the agent's row. Run by centers only."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa

from skep.model.fleet.agent import Order
from skep.store.sql.engine.database import Tx
from skep.store.sql.schema.agents import agent_orders, agents

#: Maximum stored commands of one agent, open ones included.
KEPT = 50


def add_command(tx: Tx, agent: str, name: str, now: float) -> Order:
    """Add a command; the oldest are deleted when there are too many."""
    newest = sa.select(sa.func.max(agent_orders.c.no)).where(agent_orders.c.agent == agent)
    order = Order(int(tx.execute(newest).scalar() or 0) + 1, name, now)
    row = {"agent": agent, "no": order.no, "name": name, "made_at": now, "outcome": ""}
    tx.execute(sa.insert(agent_orders).values(**row))
    old = sa.and_(agent_orders.c.agent == agent, agent_orders.c.no <= order.no - KEPT)
    tx.execute(sa.delete(agent_orders).where(old))
    _note_pending(tx, agent, now)
    return order


def acknowledge_commands(tx: Tx, agent: str, no: int, now: float) -> None:
    """Every open command up to that number was done."""
    _end(tx, agent, agent_orders.c.no <= no, now, "done")


def end_commands(tx: Tx, agent: str, names: Sequence[str], now: float, outcome: str) -> None:
    """End open commands of these names that were not acknowledged."""
    _end(tx, agent, agent_orders.c.name.in_(names), now, outcome)


def list_commands(connection: sa.Connection, agent: str, limit: int) -> list[Order]:
    """Newest first."""
    query = sa.select(agent_orders).where(agent_orders.c.agent == agent)
    rows = connection.execute(query.order_by(agent_orders.c.no.desc()).limit(limit))
    return [_order(row) for row in rows]


def _end(tx: Tx, agent: str, which: sa.ColumnElement[bool], now: float, outcome: str) -> None:
    change = sa.update(agent_orders).where(_open(agent), which)
    if tx.execute(change.values(ended_at=now, outcome=outcome)).rowcount:
        _note_pending(tx, agent, now)


def _open(agent: str) -> sa.ColumnElement[bool]:
    return sa.and_(agent_orders.c.agent == agent, agent_orders.c.ended_at.is_(None))


def _note_pending(tx: Tx, agent: str, now: float) -> None:
    """Mark open commands in the agent's row, which centers read anyway."""
    count = sa.select(sa.func.count()).select_from(agent_orders).where(_open(agent))
    pending = int(bool(tx.execute(count).scalar()))
    noted = sa.update(agents).where(agents.c.id == agent)
    tx.execute(noted.values(pending=pending, changed_at=now))


def _order(row: Any) -> Order:
    return Order(row.no, row.name, row.made_at, row.ended_at, row.outcome)
