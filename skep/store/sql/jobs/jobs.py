"""Job definitions and their history. Implements `Jobs` of `ports/jobs.py`; centers only.

A revision is written with its change, in one transaction; deleted jobs keep their history.
"""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa

from skep.errors import Conflict, UnknownJob
from skep.model.jobs.job import Job, JobRevision, KeptJob, bytes_of, job_of
from skep.model.unknown_objects import unknown_job
from skep.store.sql.engine.database import Database, Tx
from skep.store.sql.schema.jobs import job_labels, job_revisions, jobs

_LABEL = ("name", "value", "job")
_COLUMNS = tuple(column.name for column in jobs.columns)


class SqlJobs:
    """Rows of `jobs` and `job_revisions`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def save(
        self, job: Job, expected: int | None, author: str, now: float
    ) -> tuple[KeptJob, str]:
        definition = bytes_of(job)

        def work(tx: Tx) -> tuple[KeptJob, str]:
            row = (job.name, 1, definition, int(job.enabled), 0, author, now, now)
            if expected in {None, 0} and tx.dialect.insert_new(
                tx.connection, jobs, _COLUMNS, [row]
            ):
                _remember(tx, job.name, 1, definition, "created", author, now)
                _write_labels(tx, job)
                return KeptJob(job, 1, author, now, now), "created"
            held = _held(tx, job.name)
            _check_revision(held, expected)
            if bytes(held.definition) == definition and not held.deleted:
                return kept_job(held), "unchanged"
            what = "brought back" if held.deleted else "changed"
            tx.execute(sa.delete(job_labels).where(job_labels.c.job == job.name))
            _write_labels(tx, job)
            return _changed(tx, held, definition, job.enabled, what, author, now), "changed"

        return await self._database.write(work)

    async def delete(self, name: str, expected: int | None, author: str, now: float) -> KeptJob:
        def work(tx: Tx) -> KeptJob:
            held = _held(tx, name)
            _check_revision(held, expected)
            if held.deleted:
                return kept_job(held)
            definition = bytes(held.definition)
            return _changed(tx, held, definition, bool(held.enabled), "deleted", author, now)

        return await self._database.write(work)

    async def get(self, name: str) -> KeptJob:
        query = sa.select(jobs).where(jobs.c.name == name)
        return kept_job(await self._database.read(lambda c: _found(c.execute(query).first(), name)))

    async def all(
        self, limit: int, after: str = "", *, deleted: bool = False, enabled: bool | None = None
    ) -> list[KeptJob]:
        query = sa.select(jobs).where(jobs.c.name > after).order_by(jobs.c.name).limit(limit)
        if not deleted:
            query = query.where(jobs.c.deleted == 0)
        if enabled is not None:
            query = query.where(jobs.c.enabled == int(enabled))
        return await self._database.read(lambda c: [kept_job(row) for row in c.execute(query)])

    async def revisions(self, name: str, limit: int) -> list[JobRevision]:
        query = (
            sa.select(job_revisions)
            .where(job_revisions.c.job == name)
            .order_by(job_revisions.c.revision.desc())
            .limit(limit)
        )
        rows = await self._database.read(lambda c: c.execute(query).all())
        if not rows:
            raise unknown_job(name)
        return [_revision(row) for row in rows]

    async def revision(self, name: str, number: int) -> JobRevision:
        query = sa.select(job_revisions).where(
            job_revisions.c.job == name, job_revisions.c.revision == number
        )
        row = await self._database.read(lambda c: c.execute(query).first())
        if row is None:
            raise UnknownJob(f"job {name!r} has no revision {number}")
        return _revision(row)


def _held(tx: Tx, name: str) -> Any:
    """The job's row, locked until the end of the transaction."""
    query = sa.select(jobs).where(jobs.c.name == name).with_for_update()
    return _found(tx.execute(query).first(), name)


def _check_revision(row: Any, expected: int | None) -> None:
    if expected is not None and expected != row.revision:
        raise Conflict(
            f"job {row.name} is at revision {row.revision}, by {row.author}, not at {expected}; "
            "read it again and repeat the change"
        )


def _changed(
    tx: Tx, held: Any, definition: bytes, enabled: bool, what: str, author: str, now: float
) -> KeptJob:
    revision, deleted = held.revision + 1, what == "deleted"
    tx.execute(
        sa.update(jobs)
        .where(jobs.c.name == held.name)
        .values(
            revision=revision,
            definition=definition,
            enabled=int(enabled),
            deleted=int(deleted),
            author=author,
            changed_at=now,
        )
    )
    _remember(tx, held.name, revision, definition, what, author, now)
    return KeptJob(job_of(definition), revision, author, held.created_at, now, deleted)


def _write_labels(tx: Tx, job: Job) -> None:
    rows = [(name, value, job.name) for name, value in sorted(job.labels.items())]
    tx.dialect.insert_many(tx.connection, job_labels, _LABEL, rows)


def _remember(
    tx: Tx, name: str, revision: int, definition: bytes, what: str, author: str, now: float
) -> None:
    values = {"job": name, "revision": revision, "definition": definition}
    tx.execute(sa.insert(job_revisions).values(**values, what=what, author=author, at=now))


def kept_job(row: Any) -> KeptJob:
    """A row of `jobs` as data."""
    job = job_of(bytes(row.definition))
    times = (row.created_at, row.changed_at)
    return KeptJob(job, row.revision, row.author, *times, bool(row.deleted))


def _revision(row: Any) -> JobRevision:
    return JobRevision(row.revision, row.at, row.author, row.what, job_of(bytes(row.definition)))


def _found(row: Any, name: str) -> Any:
    if row is None:
        raise unknown_job(name)
    return row
