"""Acts on the requests of a bulk operation: effect and position in one transaction. Centers only.

A request that no longer matches the filter is not changed; the result says why.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import sqlalchemy as sa

from skep.model.filter.checked import CheckedFilter
from skep.model.operations import Key, OperationLease, OperationPart, OperationResult, result_of
from skep.model.states import RequestState, RunState
from skep.store.ports.operations import ActedPart, RequestAct
from skep.store.sql.engine.database import Tx
from skep.store.sql.engine.dialect import id_list
from skep.store.sql.engine.predicates import in_list, stored
from skep.store.sql.operations.rows import hold, settle_part
from skep.store.sql.operations.targets import compiled_filter, matching_keys
from skep.store.sql.requests.cancel import cancel_free
from skep.store.sql.requests.delete_ended import forget_requests
from skep.store.sql.requests.failures import change_dead, hold_requests, hold_with_runs
from skep.store.sql.runs.runs import HeldRun
from skep.store.sql.schema.requests import requests

NO_MATCH = "no longer matches the filter"
_GONE = (RequestState.DEAD, RequestState.CANCELLED, RequestState.EXPIRED)


class _Batch(NamedTuple):
    """Requests of a part, the filter that they must match, and the time."""

    keys: list[Key]
    wanted: CheckedFilter
    now: float


class _Changed(NamedTuple):
    """What an act did."""

    results: list[OperationResult]
    changed: int
    blocks: frozenset[int] = frozenset()
    notes: tuple[str, ...] = ()


def act_on_part(
    tx: Tx,
    lease: OperationLease,
    part: OperationPart,
    act: RequestAct,
    wanted: CheckedFilter,
    now: float,
    notes: Sequence[str] = (),
) -> ActedPart:
    """Change what still matches, and settle the part; raises LostLease."""
    held = hold(tx, lease)
    done = _ACTS[act](tx, _Batch(part.keys, wanted, now))
    operation = settle_part(tx, held, part.no, done.results, notes=(*notes, *done.notes))
    return ActedPart(operation, done.changed, sorted(done.blocks))


def _retry(tx: Tx, batch: _Batch) -> _Changed:
    rows, runs, other = _dead(tx, batch)
    over = [row for row in rows if runs[row.run].state == RunState.CANCELLED]
    fit = [row for row in rows if runs[row.run].state != RunState.CANCELLED] if over else rows
    if fit:
        change_dead(tx, "retry", fit)
    at_rest = {number for number, run in runs.items() if not run.running}
    results = [
        *result_of("done", "", [row.id for row in fit if row.run not in at_rest]),
        *result_of(
            "done",
            "sent when its run continues",
            [row.id for row in fit if row.run in at_rest],
        ),
        *result_of("skipped", "its run is cancelled", _ids(over)),
        *other,
    ]
    resting = sorted({runs[row.run].id for row in fit if row.run in at_rest}) if at_rest else []
    notes = (
        f"run {run} is not active; `skep runs continue {run}` sends the requests" for run in resting
    )
    return _Changed(results, len(fit), notes=tuple(notes))


def _give_up(tx: Tx, batch: _Batch) -> _Changed:
    rows, _, other = _dead(tx, batch)
    if rows:
        change_dead(tx, "cancel", rows)
    return _Changed([*result_of("done", "", _ids(rows)), *other], len(rows))


def _cancel(tx: Tx, batch: _Batch) -> _Changed:
    ids, other = _matching(tx, batch)
    free, leased = cancel_free(tx, ids, batch.now) if ids else ((), ())
    seen = {row.id for row in (*free, *leased)}
    results = [
        *result_of("done", "", _ids(free)),
        *result_of("skipped", "leased to an agent", _ids(leased)),
        *result_of("skipped", "has ended", [one for one in ids if one not in seen]),
        *other,
    ]
    blocks = frozenset(row.block for row in free if row.block is not None)
    return _Changed(results, len(free), blocks)


def _forget(tx: Tx, batch: _Batch) -> _Changed:
    ids, other = _matching(tx, batch)
    wanted = f"id IN ({id_list(ids)}) AND state IN ({id_list(_GONE)})"
    rows, runs = hold_with_runs(tx, wanted) if ids else ([], {})
    fit = [row.id for row in rows if runs[row.run].ended]
    active = [row.id for row in rows if not runs[row.run].ended]
    if fit:
        forget_requests(tx, fit)
    seen = {row.id for row in rows}
    results = [
        *result_of("done", "", fit),
        *result_of("skipped", "its run has not ended", active),
        *result_of("skipped", "is open or done", [one for one in ids if one not in seen]),
        *other,
    ]
    return _Changed(results, len(fit))


def _dead(tx: Tx, batch: _Batch) -> tuple[Sequence[Any], dict[int, HeldRun], list[OperationResult]]:
    """Dead requests that match, with their runs, and results for the others."""
    moment, died = batch.wanted.now, requests.c.died_at
    compiled = compiled_filter(tx.connection, tx.dialect.name, batch.wanted, 0.0)
    part = in_list(requests.c.id, [int(key) for key in batch.keys])
    dead = (stored(RequestState.DEAD), sa.or_(died.is_(None), died <= moment))
    # One search for all of it: a part is a thousand requests, and others wait to write.
    rows, runs = hold_requests(tx, part, part, *dead, *compiled.conditions)
    if len(rows) == len(batch.keys):
        return rows, runs, []
    seen = {row.id for row in rows}
    left = batch._replace(keys=[key for key in batch.keys if key not in seen])
    ids, other = _matching(tx, left)
    return rows, runs, [*result_of("skipped", "is not dead", ids), *other]


def _matching(tx: Tx, batch: _Batch) -> tuple[list[int], list[OperationResult]]:
    """Requests that match, and a result for the others."""
    found = matching_keys(tx.connection, tx.dialect.name, batch.wanted, 0.0, batch.keys)
    others = [key for key in batch.keys if key not in found]
    return sorted(int(key) for key in found), result_of("skipped", NO_MATCH, others)


def _ids(rows: Sequence[Any]) -> list[Key]:
    return [row.id for row in rows]


_ACTS: dict[RequestAct, Callable[[Tx, _Batch], _Changed]] = {
    "retry": _retry,
    "give_up": _give_up,
    "cancel": _cancel,
    "forget": _forget,
}
