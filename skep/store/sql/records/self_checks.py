"""Differences between tables that belong together. Implements `Checks`; run by centers only.

Every kind is one condition over one table, walked by its key. The same condition decides again
when a row is repaired, in the transaction that repairs it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import sqlalchemy as sa

from skep.model.delivery import DeliveryState
from skep.model.states import CLAIMABLE, BlockState, RunState
from skep.store.ports.self_checks import CommittedSegment, StoreCheck
from skep.store.sql.engine.database import Database, Tx
from skep.store.sql.records.request_checks import find_in_requests, repair_requests
from skep.store.sql.runs.runs import OVER
from skep.store.sql.schema.agents import tokens
from skep.store.sql.schema.allocations import allocations
from skep.store.sql.schema.blocks import blocks
from skep.store.sql.schema.deliveries import deliveries
from skep.store.sql.schema.ended_work import deletions, segment_runs
from skep.store.sql.schema.hosts import site_holds
from skep.store.sql.schema.jobs import job_runs
from skep.store.sql.schema.records import segments
from skep.store.sql.schema.runs import items, runs

_OPEN_BLOCKS = [int(state) for state in (*CLAIMABLE, BlockState.USING)]
_OVER = [str(state) for state in OVER]
_DRIVER = "driver"


class _Kind(NamedTuple):
    """A table, the key by which it is scanned, its rows, and the condition of a difference."""

    key: sa.Column[Any]
    among: sa.ColumnElement[bool]
    wrong: sa.ColumnElement[bool]
    #: New values; None deletes the row.
    values: dict[str, Any] | None


def _kind(kind: StoreCheck, now: float) -> _Kind:
    match kind:
        case "holds":
            mine = sa.select(blocks.c.id).where(blocks.c.id == site_holds.c.block)
            held = sa.exists(mine.where(blocks.c.state.in_(_OPEN_BLOCKS)))
            free = {"block": None, "until": now}
            return _Kind(site_holds.c.host, site_holds.c.block.is_not(None), ~held, free)
        case "allocations":
            run = sa.select(runs.c.no).where(runs.c.no == allocations.c.run)
            needed = sa.exists(run.where(runs.c.state.not_in(_OVER)))
            closed = {"released_at": now}
            return _Kind(allocations.c.run, allocations.c.released_at.is_(None), ~needed, closed)
        case "positions":
            return _positions()
        case "tokens":
            run = sa.select(runs.c.no).where(runs.c.id == tokens.c.subject)
            goes_on = sa.exists(run.where(runs.c.state.not_in(_OVER)))
            care = sa.select(job_runs.c.run).where(job_runs.c.run == tokens.c.subject)
            # A failed run waits until a user continues it. Without a holder it has no driver:
            # its token was issued by a center that died before it could revoke it.
            failed = sa.exists(run.where(runs.c.state == str(RunState.FAILED)))
            driven = sa.or_(job_runs.c.holder != "", ~failed)
            kept = sa.exists(care.where(job_runs.c.open == 1, driven))
            good = sa.and_(tokens.c.role == _DRIVER, tokens.c.revoked == 0)
            return _Kind(tokens.c.digest, good, ~goes_on & ~kept, {"revoked": 1})
        case "segments":
            there = sa.exists(sa.select(runs.c.no).where(runs.c.no == segment_runs.c.run))
            return _Kind(segment_runs.c.run, sa.true(), ~there, None)
        case _:
            raise ValueError(f"{kind} is checked in `request_checks.py`")


def _positions() -> _Kind:
    """Repaired so that no item is lost: those after the position are delivered again, or for the
    first time. The lease is raised, so that a center that is delivering is fenced out."""
    c = deliveries.c
    number = sa.select(runs.c.no).where(runs.c.id == c.run).correlate(deliveries)
    mine = items.c.run == number.scalar_subquery()
    last = sa.select(sa.func.max(items.c.id)).where(mine).correlate(deliveries).scalar_subquery()
    left = sa.exists(sa.select(items.c.id).where(mine, items.c.id > c.position))
    goes_on = sa.exists(number.where(runs.c.state.not_in(_OVER)))
    was_cut = sa.exists(
        sa.select(deletions.c.run).where(deletions.c.run == number.scalar_subquery())
    )
    ahead = sa.and_(goes_on, ~was_cut, c.position > sa.func.coalesce(last, 0))
    wrong = sa.or_(sa.and_(c.state == str(DeliveryState.DONE), left.correlate(deliveries)), ahead)
    values = {
        "state": str(DeliveryState.OPEN),
        "position": sa.case((ahead, sa.func.coalesce(last, 0)), else_=c.position),
        "lease": c.lease + 1,
        "holder": "",
        "held_until": 0.0,
        "again_at": 0.0,
    }
    return _Kind(c.run, c.state != str(DeliveryState.GIVEN_UP), wrong, values)


class SqlChecks:
    """Reads with `find`, writes with `repair`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def find(self, kind: StoreCheck, after: str, limit: int) -> tuple[list[str], str]:
        if kind == "spans" or kind == "failures":  # noqa: PLR1714 - mypy narrows it this way
            return await self._database.read(lambda c: find_in_requests(c, kind, after, limit))
        of = _kind(kind, 0.0)
        # The page is limited first, so that one step reads at most `limit` rows.
        page = sa.select(of.key).distinct().where(of.among).order_by(of.key).limit(limit)
        if after:
            page = page.where(of.key > _read(kind, after))

        def work(connection: sa.Connection) -> tuple[list[str], str]:
            keys = list(connection.execute(page).scalars())
            if not keys:
                return [], ""
            seen = sa.and_(of.key >= keys[0], of.key <= keys[-1], of.among, of.wrong)
            wrong = connection.execute(sa.select(of.key).where(seen).distinct().limit(limit))
            more = _name(keys[-1]) if len(keys) == limit else ""
            return [_name(key) for key in wrong.scalars()], more

        return await self._database.read(work)

    async def segments(self, writer: str, after: str, limit: int) -> list[CommittedSegment]:
        name = segments.c.name
        query = sa.select(name, segments.c.committed, segments.c.deleted_at, segments.c.gone)
        query = query.where(name.startswith(f"{writer}-", autoescape=True), name > after)
        query = query.order_by(name).limit(limit)
        rows = await self._database.read(lambda c: c.execute(query).all())
        return [
            CommittedSegment(row.name, row.committed, row.deleted_at is not None, bool(row.gone))
            for row in rows
        ]

    async def repair(self, kind: StoreCheck, names: Sequence[str], now: float) -> list[str]:
        if not names:
            return []
        if kind == "spans" or kind == "failures":  # noqa: PLR1714 - mypy narrows it this way
            return await self._database.write(lambda tx: repair_requests(tx, kind, names))
        return await self._database.write(lambda tx: _repair(tx, kind, names, now))


def _repair(tx: Tx, kind: StoreCheck, names: Sequence[str], now: float) -> list[str]:
    of, repaired = _kind(kind, now), []
    for name in names:
        here = sa.and_(of.key == _read(kind, name), of.among, of.wrong)
        change = (
            sa.delete(of.key.table).where(here)
            if of.values is None
            else sa.update(of.key.table).where(here).values(**of.values)
        )
        if tx.execute(change).rowcount:
            repaired.append(name)
    return repaired


def _name(key: Any) -> str:
    return bytes(key).hex() if isinstance(key, bytes | memoryview) else str(key)


def _read(kind: StoreCheck, name: str) -> Any:
    match kind:
        case "holds" | "positions":
            return name
        case "tokens":
            return bytes.fromhex(name)
        case _:
            return int(name)
