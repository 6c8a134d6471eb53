"""Selects the waiting requests of a plan, in the order that their run defines. Centers only.

The rows are locked: two centers that pack at once never get the same one.
"""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa

from skep.model.states import RequestState
from skep.store.ports.requests import PackPlan
from skep.store.sql.engine.database import Tx
from skep.store.sql.engine.in_list import in_list
from skep.store.sql.engine.predicates import FAILED_BEFORE, stored
from skep.store.sql.schema.requests import requests

#: Oldest requests that are grouped by host. A bound, so that a backlog of millions costs no
#: more than one of thousands, and no host waits because of its position in the alphabet.
HOST_WINDOW = 5000

_SIZE = sa.func.length(requests.c.arguments).label("bytes")
_ROWS = sa.select(requests.c.id, requests.c.uri, requests.c.expires_at, _SIZE).add_columns(
    requests.c.host, requests.c.failures
)


def waiting_of(tx: Tx, run: int, plan: PackPlan) -> list[Any]:
    """At most `plan.limit` rows, locked."""
    if plan.order == "priority":
        query = _of_plan(_ROWS, run, plan).limit(plan.limit)
        return list(tx.execute(query.with_for_update(skip_locked=True)))
    return _host_by_host(tx, run, plan)


def _of_plan(query: sa.Select[Any], run: int, plan: PackPlan) -> sa.Select[Any]:
    query = query.where(requests.c.run == run, requests.c.priority == plan.priority)
    query = query.where(stored(RequestState.WAITING)).order_by(requests.c.id)
    return query.where(FAILED_BEFORE) if plan.failed_only else query


def _host_by_host(tx: Tx, run: int, plan: PackPlan) -> list[Any]:
    """The host with the oldest request comes first, with all its requests in the window."""
    window = _of_plan(sa.select(requests.c.id, requests.c.host), run, plan)
    hosts: dict[str, list[int]] = {}
    for row in tx.execute(window.limit(max(HOST_WINDOW, plan.limit))):
        hosts.setdefault(row.host, []).append(row.id)
    chosen = [number for numbers in hosts.values() for number in numbers][: plan.limit]
    if not chosen:
        return []
    # Read without a lock: rows that another center took meanwhile are left out.
    query = _ROWS.where(in_list(requests.c.id, chosen))
    query = query.where(stored(RequestState.WAITING)).order_by(requests.c.id)
    rows = {row.id: row for row in tx.execute(query.with_for_update(skip_locked=True))}
    return [rows[number] for number in chosen if number in rows]
