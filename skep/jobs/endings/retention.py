"""Deletes expired records of ended runs. Run by centers.

Limits by age apply first, then limits by bytes, oldest runs first. It never deletes an active run
or an open request, works in small batches so that other work is not delayed, and deletes a
segment of the archive only when no row refers to it. `plan` returns what `step` would delete.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Mapping

import msgspec

from skep.archive.ports import Archive
from skep.model.jobs.job import KeepPart
from skep.model.retention import KINDS, Deleted, Expired, KeepKind
from skep.runtime.clock import Clock
from skep.settings import KeepSettings
from skep.store.ports import Store
from skep.store.ports.ended_work import EndedRun

log = logging.getLogger(__name__)

#: Rows of one transaction, which takes a few hundredths of a second.
BATCH = 500
#: Seconds between two batches, in which other work goes first.
PAUSE = 0.02
PAGE = 500
#: Runs of one step; the next step continues.
STEP_RUNS = 5000
SEGMENTS = 200
#: Seconds that a package is kept after the last run started with it, and chunks of one batch.
PACKAGES_KEPT, CHUNKS = 86400.0, 8
#: The key for all jobs together.
EVERYTHING = ""


class Retention:
    """One center's part in retention."""

    def __init__(
        self, center: str, settings: KeepSettings, store: Store, archive: Archive, clock: Clock
    ) -> None:
        self._center = center
        self._settings = settings
        self._store = store
        self._archive = archive
        self._clock = clock

    async def plan(self, limit: int = STEP_RUNS) -> list[Expired]:
        """What has expired, oldest first within each kind."""
        parts = await self._parts()
        found: list[Expired] = []
        for kind in KINDS:
            aged = await self._by_age(kind, parts, limit - len(found))
            found += aged
            found += await self._by_bytes(kind, parts, aged, limit - len(found))
        return found

    async def step(self) -> Deleted:
        """Delete what has expired, then segments that are no longer referenced."""
        deleted = Deleted()
        for item in await self.plan():
            deleted.runs += 1
            await self._forget(item, deleted)
        await self._segments(deleted)
        await self._packages()
        if deleted.runs or deleted.segments:
            told = ", ".join(f"{n} {name}" for name, n in msgspec.structs.asdict(deleted).items())
            log.info("retention deleted: %s", told)
            await self._tell(told)
        return deleted

    async def _tell(self, told: str) -> None:
        await self._store.alerts.raise_("retention", self._center, told, self._clock.now())

    # -- decisions

    async def _parts(self) -> dict[str, KeepPart]:
        """The `keep` parts of jobs."""
        parts: dict[str, KeepPart] = {}
        after = ""
        while page := await self._store.jobs.all(PAGE, after, deleted=True):
            parts |= {kept.job.name: kept.job.keep for kept in page if kept.job.keep is not None}
            after = page[-1].job.name
        return parts

    async def _by_age(
        self, kind: KeepKind, parts: Mapping[str, KeepPart], limit: int
    ) -> list[Expired]:
        now, name = self._clock.now(), f"{kind}_age"
        said = [age for part in parts.values() if (age := getattr(part, name)) is not None]
        ages = [age for age in (*said, getattr(self._settings, name)) if age]
        if not ages:
            return []

        def due(run: EndedRun) -> str:
            age = self._limit(name, parts.get(run.job))
            return f"older than {age:g} s" if age and now - run.ended_at > age else ""

        return await self._walk(kind, now - min(ages), due, limit)

    async def _by_bytes(
        self, kind: KeepKind, parts: Mapping[str, KeepPart], aged: list[Expired], limit: int
    ) -> list[Expired]:
        name = f"{kind}_bytes"
        limits = {job: size for job, part in parts.items() if (size := getattr(part, name))}
        if of_all := getattr(self._settings, name):
            limits[EVERYTHING] = of_all
        if not limits:
            return []
        volumes = await self._store.retention.volumes(kind)
        volumes[EVERYTHING] = sum(volumes.values())
        over = Counter({who: volumes.get(who, 0) - size for who, size in limits.items()})
        gone = {item.run for item in aged}
        for item in aged:
            over.subtract({item.job: item.volume, EVERYTHING: item.volume})

        def due(run: EndedRun) -> str:
            who = next((who for who in (run.job, EVERYTHING) if over[who] > 0), None)
            if run.id in gone or who is None or not run.volume:
                return ""
            over.subtract({run.job: run.volume, EVERYTHING: run.volume})
            return f"over keep.{name}" + (f" of job {who}" if who else "")

        if max(over.values()) <= 0:
            return []
        return await self._walk(kind, self._clock.now(), due, limit)

    def _limit(self, name: str, part: KeepPart | None) -> float:
        said = getattr(part, name) if part is not None else None
        return float(getattr(self._settings, name) if said is None else said)

    async def _walk(
        self, kind: KeepKind, before: float, due: Callable[[EndedRun], str], limit: int
    ) -> list[Expired]:
        found: list[Expired] = []
        after = (0.0, 0)
        while len(found) < limit:
            page = await self._store.retention.ended(kind, before, after, PAGE)
            found += [_expired(run, kind, why) for run in page if (why := due(run))]
            if len(page) < PAGE:
                break
            after = (page[-1].ended_at, page[-1].no)
        return found[:limit]

    # -- deletion

    async def _forget(self, item: Expired, deleted: Deleted) -> None:
        while True:
            now = self._clock.now()
            count, done = await self._store.retention.forget(item.kind, item.no, now, BATCH)
            setattr(deleted, item.kind, getattr(deleted, item.kind) + count)
            if done:
                return
            await self._clock.sleep(PAUSE)

    async def _packages(self) -> None:
        """Delete packages that no open run needs; each run packs its own."""
        before = self._clock.now() - PACKAGES_KEPT
        while await self._store.packages.forget(before, CHUNKS):
            await self._clock.sleep(PAUSE)

    async def _segments(self, deleted: Deleted) -> None:
        """Mark, delete, then remove the row: after a crash this continues."""
        while await self._store.retention.mark_segments(self._clock.now(), SEGMENTS):
            await self._clock.sleep(PAUSE)
        for row in await self._store.retention.marked_segments(SEGMENTS):
            size = await self._archive.delete(row.name)
            if size is None:
                continue  # the newest of its writer, or in the archive of another center
            await self._store.retention.segment_gone(row.name)
            deleted.segments += 1
            deleted.segment_bytes += size


def _expired(run: EndedRun, kind: KeepKind, why: str) -> Expired:
    return Expired(run.id, run.job, kind, why, run.ended_at, run.volume, run.no)
