"""Moves positions that earlier versions stored in files of one center into the store.

Run once by each center when it starts. Files of `skep run`, whose runs belong to no job, stay:
that program reads them.
"""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path

from skep.errors import ConfigurationError, UnknownJob, UnknownRun
from skep.model.delivery import Delivery, DeliveryState, sink_key, url_key
from skep.model.jobs.job import JobRun, SinkPart
from skep.store.ports import Store
from skep.streams.position import Remembered, read_state
from skep.streams.registry import secrets_hidden

log = logging.getLogger(__name__)

SUFFIX = ".position"
CLOSED = "the run ended before this sink had all of its items"


async def move_position_files(store: Store, folder: Path, now: float) -> int:
    """Returns how many were moved; an unreadable file stays and is logged."""
    moved = 0
    for file in sorted(await asyncio.to_thread(_listed, folder)):
        run, _, key = file.name.removesuffix(SUFFIX).rpartition("-")
        row = await store.job_runs.get(run)
        if row is None or (part := await _part(store, row, key)) is None:
            continue
        try:
            known = await asyncio.to_thread(read_state, file, Remembered)
        except ConfigurationError as error:
            log.warning("%s", error.detail)
            continue
        position = known.position if known else 0
        await store.deliveries.adopt(await _delivery(store, row, part, position, now))
        await asyncio.to_thread(file.unlink, missing_ok=True)
        moved += 1
    if moved:
        log.info("moved %d positions of sinks from %s into the store", moved, folder)
    return moved


def _listed(folder: Path) -> list[Path]:
    return list(folder.glob(f"*{SUFFIX}"))


async def _part(store: Store, row: JobRun, key: str) -> SinkPart | None:
    try:
        job = (await store.jobs.revision(row.job, row.revision)).job
    except UnknownJob:
        return None
    return next((part for part in job.sinks if url_key(part.url) == key), None)


async def _delivery(
    store: Store, row: JobRun, part: SinkPart, position: int, now: float
) -> Delivery:
    """The delivery of a file; one that is incomplete and whose run is closed waits for a user."""
    state, error = DeliveryState.OPEN, ""
    if not row.open:
        left = await _has_more(store, row.run, position)
        state = DeliveryState.GIVEN_UP if left else DeliveryState.DONE
        error = CLOSED if left else ""
    return Delivery(
        row.run,
        sink_key(part),
        row.job,
        secrets_hidden(part.url),
        state,
        position,
        error=error,
        error_at=now if error else 0.0,
        changed_at=now,
    )


async def _has_more(store: Store, run: str, position: int) -> bool:
    try:
        return bool(await store.checkpoints.items(run, position, 1))
    except UnknownRun:
        return False
