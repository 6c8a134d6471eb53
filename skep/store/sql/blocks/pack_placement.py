"""Groups waiting requests by target agent. Run by centers only, inside a transaction.

Requests that can go to no agent now are held back: parked without a failure, and checked again
soon.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import sqlalchemy as sa

from skep.model.fleet.placement import kind_target
from skep.model.states import RequestState
from skep.store.ports.placement import Placing, Wanted
from skep.store.sql.engine.database import Tx
from skep.store.sql.engine.dialect import id_list
from skep.store.sql.hosts.host_batches import park
from skep.store.sql.runs.runs import HeldRun

#: Seconds until a request that was held back is checked again.
HELD_SECONDS = 3.0
_SESSION = 4
_arguments = msgspec.msgpack.Decoder(list[Any])


def by_target(
    tx: Tx, run: HeldRun, rows: list[Any], placing: Placing | None, now: float
) -> tuple[dict[str, list[Any]], int]:
    """target -> rows, in their order; and the number of rows held back."""
    rules = run.rules
    if rules.placement.plain:
        return {kind_target(rules.downloader): rows}, 0
    if placing is None:
        # Its agents are not chosen yet, or this center does not know them yet.
        return {}, _hold_back(tx, run, rows, now)
    groups: dict[str, list[Any]] = {}
    held: list[Any] = []
    for row, wanted in zip(rows, _wanted(tx, rows, placing), strict=True):
        target = placing.target(wanted)
        (held if target is None else groups.setdefault(target, [])).append(row)
    return groups, _hold_back(tx, run, held, now)


def _hold_back(tx: Tx, run: HeldRun, rows: list[Any], now: float) -> int:
    park(tx, [(row.id, now + HELD_SECONDS) for row in rows])
    tx.move(run.no, RequestState.WAITING, RequestState.DELAYED, len(rows))
    return len(rows)


def _wanted(tx: Tx, rows: list[Any], placing: Placing) -> list[Wanted]:
    ids = [row.id for row in rows]
    sessions = sessions_of(tx.connection, ids) if placing.by_session else {}
    places = _places_of(tx.connection, ids) if placing.chained else {}
    return [Wanted(row.uri, row.host, sessions.get(row.id, ""), places.get(row.id)) for row in rows]


def _places_of(connection: sa.Connection, ids: Sequence[int]) -> dict[int, str]:
    if not ids:
        return {}
    rows = connection.exec_driver_sql(
        f"SELECT id, place FROM requests WHERE id IN ({id_list(ids)}) AND place <> ''"  # noqa: S608 - integers
    )
    return {row.id: row.place for row in rows}


def sessions_of(connection: sa.Connection, ids: Sequence[int]) -> dict[int, str]:
    """The sessions that requests name; those without one are absent."""
    if not ids:
        return {}
    rows = connection.exec_driver_sql(
        f"SELECT id, arguments FROM requests WHERE id IN ({id_list(ids)})"  # noqa: S608 - integers
    )
    named = ((row.id, _session(bytes(row.arguments))) for row in rows if row.arguments)
    return {number: session for number, session in named if session}


def _session(arguments: bytes) -> str:
    found = _arguments.decode(arguments)
    return str(found[_SESSION]) if len(found) > _SESSION else ""
