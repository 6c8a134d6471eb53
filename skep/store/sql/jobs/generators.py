"""Generators of runs, and URIs that jobs took recently. Implements `Generations`.

Run by centers only. A job without a window costs nothing here. With one, a URI belongs to the run
that inserted it first: the unique key decides, also between runs on two centers.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from hashlib import blake2b
from typing import Any

import msgspec
import sqlalchemy as sa

from skep.errors import StaleToken
from skep.model.jobs.generator_progress import Counts, Generation, GenerationState, Taken, Window
from skep.model.jobs.job import RunLease
from skep.store.ports.requests import RequestRow
from skep.store.sql.engine.database import Database, Tx
from skep.store.sql.requests.requests import accept_rows
from skep.store.sql.runs.runs import hold_run
from skep.store.sql.runs.supervisor_lease import check_lease
from skep.store.sql.schema.generators import generations, taken_uris

#: Maximum fingerprints in one statement.
CHUNK = 500
DETAIL_LIMIT = 2000
_COLUMNS = tuple(column.name for column in generations.columns)
_TAKEN_COLUMNS = ("job", "fingerprint", "until", "run")


class SqlGenerations:
    """Rows of `generations` and `taken_uris`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def begin(self, new: Generation, lease: RunLease | None = None) -> Generation:
        def work(tx: Tx) -> Generation:
            check_lease(tx, lease)
            return _begin(tx, new)

        return await self._database.write(work)

    async def take(
        self,
        begun: Generation,
        rows: Sequence[RequestRow],
        counts: Counts,
        window: Window | None,
        now: float,
    ) -> Taken:
        def work(tx: Tx) -> Taken:
            run = hold_run(tx, begun.run)
            free = rows if window is None else _claimed(tx, run.no, rows, window, now)
            new = accept_rows(tx, run, free, now).new
            recent = len(rows) - len(free)
            adding = {
                "taken": generations.c.taken + new,
                "recent": generations.c.recent + recent,
                **_figures(counts),
            }
            change = sa.update(generations).where(*_mine(begun)).values(**adding)
            if not tx.execute(change).rowcount:
                raise StaleToken(f"generator {begun.name} of run {begun.run} was restarted")
            return Taken(new, recent)

        return await self._database.write(work)

    async def end(
        self, begun: Generation, state: GenerationState, detail: str, counts: Counts
    ) -> bool:
        values = {**_figures(counts), "state": str(state), "detail": _kept(detail)}
        change = sa.update(generations).where(*_mine(begun)).values(**values)
        return await self._database.write(lambda tx: bool(tx.execute(change).rowcount))

    async def of(self, run_id: str) -> list[Generation]:
        query = sa.select(generations).where(generations.c.run == run_id)
        query = query.order_by(generations.c.n)
        return await self._database.read(lambda c: [_generation(row) for row in c.execute(query)])

    async def forget(self, now: float, limit: int) -> int:
        over = sa.select(taken_uris.c.until).where(taken_uris.c.until <= now)
        oldest = over.order_by(taken_uris.c.until).limit(limit)

        def work(tx: Tx) -> int:
            found = tx.execute(oldest).scalars().all()
            if not found:
                return 0
            # Rows of one batch have the same time, so it can be more than `limit`.
            gone = sa.delete(taken_uris).where(taken_uris.c.until <= found[-1])
            return int(tx.execute(gone).rowcount)

        return await self._database.write(work)


def _begin(tx: Tx, new: Generation) -> Generation:
    row = tuple(str(v) if k == "state" else v for k, v in _values(new).items())
    tx.dialect.insert_new(tx.connection, generations, _COLUMNS, [row])
    mine = sa.and_(generations.c.run == new.run, generations.c.n == new.n)
    query = sa.select(generations).where(mine).with_for_update()
    kept = _generation(tx.execute(query).one())
    if kept.state is GenerationState.DONE:
        return kept
    # `recent` is counted anew like the other counts; taken requests stay taken.
    again = msgspec.structs.replace(
        kept, state=GenerationState.RUNNING, starts=kept.starts + 1, recent=0, detail=""
    )
    values = {"state": str(again.state), "starts": again.starts, "recent": 0}
    tx.execute(sa.update(generations).where(mine).values(**values, **_figures(Counts())))
    return again


def _claimed(
    tx: Tx, run: int, rows: Sequence[RequestRow], window: Window, now: float
) -> list[RequestRow]:
    """Those that this run may take. Always in the same order, so that callers do not deadlock."""
    job = _number(window.job)
    keys = sorted({row.fingerprint for row in rows})
    for part in _chunks(keys):
        same = sa.and_(taken_uris.c.job == job, taken_uris.c.fingerprint.in_(part))
        tx.execute(sa.delete(taken_uris).where(same, taken_uris.c.until <= now))
    offered = [(job, key, window.until, run) for key in keys]
    tx.dialect.insert_new(tx.connection, taken_uris, _TAKEN_COLUMNS, offered)
    mine: set[bytes] = set()
    for part in _chunks(keys):
        query = sa.select(taken_uris.c.fingerprint).where(taken_uris.c.job == job)
        query = query.where(taken_uris.c.fingerprint.in_(part), taken_uris.c.run == run)
        mine.update(map(bytes, tx.execute(query).scalars()))
    return [row for row in rows if row.fingerprint in mine]


def _mine(begun: Generation) -> tuple[sa.ColumnElement[bool], ...]:
    c = generations.c
    return (c.run == begun.run, c.n == begun.n, c.starts == begun.starts)


def _figures(counts: Counts) -> dict[str, Any]:
    return {
        "yielded": counts.yielded,
        "bad": counts.bad,
        "seconds": counts.seconds,
        "detail": _kept(counts.complaint),
    }


def _kept(text: str) -> str:
    """Removes NUL, which PostgreSQL cannot store, and lone surrogates, which no database can."""
    clean = text.replace("\0", "\ufffd").encode(errors="replace").decode()
    return clean[:DETAIL_LIMIT]


def _number(job: str) -> int:
    """A short key for a job: millions of rows store it."""
    digest = blake2b(job.encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big", signed=True)


def _chunks(keys: Sequence[bytes]) -> Iterable[Sequence[bytes]]:
    return (keys[start : start + CHUNK] for start in range(0, len(keys), CHUNK))


def _values(generation: Generation) -> dict[str, Any]:
    return {name: getattr(generation, name) for name in _COLUMNS}


def _generation(row: Any) -> Generation:
    values = {name: getattr(row, name) for name in _COLUMNS}
    return Generation(**{**values, "state": GenerationState(row.state)})
