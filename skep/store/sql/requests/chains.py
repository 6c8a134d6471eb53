"""Chains: which agent a found request belongs to, and chains that restart on another agent.

Run by centers only, inside a transaction. A request of a chain belongs to the agent that
fetched the page on which it was found; `root` is the first request of its chain.
"""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import blake2b
from typing import Any, NamedTuple

import sqlalchemy as sa

from skep.model.states import FINAL_STATES, BlockState, RequestState
from skep.store.sql.engine.database import ACCEPTED, Tx
from skep.store.sql.engine.dialect import id_list
from skep.store.sql.runs.runs import HeldRun
from skep.store.sql.schema.blocks import blocks
from skep.store.sql.schema.requests import attempts, requests

#: Prefix of a place that is not an agent, but a request: the agent that fetches it.
AFTER = ">"
_IDLE = id_list((RequestState.WAITING, RequestState.DELAYED))
_OPEN_BLOCKS = (int(BlockState.READY), int(BlockState.USING), int(BlockState.RETRY))
#: Maximum rows of one statement.
CHUNK = 500


class Origin(NamedTuple):
    """Where a request was found."""

    #: "" when no agent has fetched it.
    agent: str
    root: int | None


NOWHERE = Origin("", None)


def origins(tx: Tx, run: int, parents: Iterable[int]) -> dict[int, Origin]:
    """parent -> the agent that fetched it, and its chain's first request; others are absent."""
    wanted = id_list(set(parents))
    if not wanted:
        return {}
    rows = tx.sql(f"SELECT id, root FROM requests WHERE id IN ({wanted}) AND run = {run:d}")  # noqa: S608
    roots = {row.id: row.root or row.id for row in rows}
    fetched = tx.sql(
        f"SELECT request, agent FROM attempts WHERE request IN ({wanted})"  # noqa: S608
        " ORDER BY request, at, token"
    )
    by = {row.request: row.agent for row in fetched}
    return {parent: Origin(by.get(parent, ""), root) for parent, root in roots.items()}


def belonging(connection: sa.Connection, run: int, agent: str) -> int:
    """Number of open requests that can go to no other agent."""
    idle = (
        sa.select(sa.func.count())
        .select_from(requests)
        .where(sa.literal_column(f"requests.state IN ({_IDLE})"))
        .where(requests.c.run == run, requests.c.place == agent)
    )
    queued = (
        sa.select(sa.func.count())
        .select_from(requests)
        .join(blocks, blocks.c.id == requests.c.block)
    )
    queued = queued.where(blocks.c.run == run, blocks.c.target == agent)
    queued = queued.where(blocks.c.state.in_(_OPEN_BLOCKS), requests.c.place == agent)
    queued = queued.where(requests.c.state == int(RequestState.QUEUED))
    return int(connection.execute(idle).scalar_one()) + int(connection.execute(queued).scalar_one())


def restart_chains(tx: Tx, run: HeldRun, gone: str, to: str, now: float) -> int:
    """Copies of the first requests of an agent's chains wait for another agent, and the open
    requests of the chains wait for the copies. Returns how many."""
    idle = sa.and_(
        requests.c.run == run.no,
        requests.c.place == gone,
        sa.literal_column(f"requests.state IN ({_IDLE})"),
    )
    query = sa.select(requests.c.root).where(idle, requests.c.root.is_not(None)).distinct()
    roots = sorted(tx.execute(query.limit(CHUNK)).scalars())
    for root in roots:
        copy = _copy(tx, run.no, root, gone, to, now)
        chain = sa.update(requests).where(idle, requests.c.root == root)
        tx.execute(chain.values(place=f"{AFTER}{copy}", root=copy))
    return len(roots)


def _copy(tx: Tx, run: int, root: int, gone: str, to: str, now: float) -> int:
    """Copy the first request of a chain for another agent; once for each agent that is gone."""
    row: Any = tx.execute(sa.select(requests).where(requests.c.id == root)).one()
    again = f"restart {gone} {to}".encode()
    fingerprint = blake2b(bytes(row.fingerprint) + again, digest_size=16).digest()
    values = {
        "run": run,
        "fingerprint": fingerprint,
        "uri": row.uri,
        "host": row.host,
        "priority": row.priority,
        "arguments": bytes(row.arguments),
        "state": int(RequestState.WAITING),
        "failures": 0,
        "not_before": 0.0,
        "created_at": now,
        "place": to,
    }
    row_of = [tuple(values.values())]
    found = tx.dialect.insert_spanning(tx.connection, requests, tuple(values), row_of)
    new = found.new
    if new:
        tx.span(run, now, found.low, found.high)
    tx.tally(run, ACCEPTED, new)
    tx.tally(run, RequestState.WAITING, new)
    same = sa.and_(requests.c.run == run, requests.c.fingerprint == fingerprint)
    return int(tx.execute(sa.select(requests.c.id).where(same)).scalar_one())


def rejoin(tx: Tx, run: HeldRun) -> list[int]:
    """Requests that wait for a fetched first request go to the agent that fetched it."""
    waiting = sa.and_(
        requests.c.run == run.no,
        sa.literal_column(f"requests.state IN ({_IDLE})"),
        requests.c.place.like(f"{AFTER}%"),
    )
    found = tx.execute(sa.select(requests.c.place).where(waiting).distinct()).scalars()
    firsts = [int(place.removeprefix(AFTER)) for place in found]
    lost: list[int] = []
    for first, state in _ended(tx, firsts):
        if state != RequestState.DONE:
            lost.append(first)
            continue
        query = sa.select(attempts.c.agent).where(attempts.c.request == first)
        query = query.where(attempts.c.failure == "").order_by(attempts.c.at.desc()).limit(1)
        chain = sa.update(requests).where(waiting, requests.c.place == f"{AFTER}{first}")
        tx.execute(chain.values(place=tx.execute(query).scalar()))
    return lost


def _ended(tx: Tx, ids: list[int]) -> list[tuple[int, int]]:
    if not ids:
        return []
    rows = tx.sql(
        f"SELECT id, state FROM requests WHERE id IN ({id_list(ids)})"  # noqa: S608 - integers
        f" AND state IN ({id_list(FINAL_STATES)})"
    )
    return [(row.id, row.state) for row in rows]
