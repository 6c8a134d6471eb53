"""Rebuilds rows from the archive, after the store lost them. The center must be stopped.

Restored: a separate run with one finished request per archived page, so that every body can be
read, exported and replayed. Lost: which run, job or spider requested a page, failed attempts,
items, and everything that was still waiting.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path

import msgspec

from skep.archive.registry import folder_of, is_s3
from skep.archive.segment_scan import found_pages
from skep.archive.segments import is_segment
from skep.errors import ConfigurationError
from skep.model.archived_page import ArchivedPage
from skep.model.run import Run, RunSettings
from skep.model.states import RunState
from skep.runtime.clock import Clock
from skep.runtime.file_lock import try_lock
from skep.settings import Settings
from skep.store.open_store import open_store
from skep.store.ports import Store

#: Pages in one transaction.
BATCH = 500
JOB = "rebuilt"


class Rebuilt(msgspec.Struct):
    """The numbers of pages found and added."""

    run: str
    segments: int = 0
    pages: int = 0
    #: Pages without a row before.
    added: int = 0


async def rebuild(settings: Settings, clock: Clock, note: Callable[[str], None]) -> Rebuilt:
    """Raises ConfigurationError if the center runs or its archive is not a folder."""
    if is_s3(settings.archive_url):
        raise ConfigurationError(
            "rebuild reads segments from a folder; copy the .warc.zst objects of the bucket into "
            "one and set it with --set archive.url=FOLDER"
        )
    lock = hold_folder(Path(settings.data))
    try:
        store = open_store(settings.store_url, settings.store)
        await store.open()
        try:
            return await _rebuild(store, folder_of(settings.archive_url), clock, note)
        finally:
            await store.close()
    finally:
        os.close(lock)


def hold_folder(folder: Path) -> int:
    """The lock of the data folder's center; raises ConfigurationError while it runs."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    lock = try_lock(folder / "center.lock")
    if lock is None:
        raise ConfigurationError(f"a center runs in {folder}; stop it first")
    return lock


def segment_files(folder: Path) -> list[Path]:
    """Every segment of every writer, including those set aside."""
    return sorted(path for path in folder.glob("*.warc.zst") if is_segment(path.name))


async def _rebuild(
    store: Store, folder: Path, clock: Clock, note: Callable[[str], None]
) -> Rebuilt:
    now = clock.now()
    done = Rebuilt(f"rebuilt-{int(now)}")
    await store.runs.create(Run(done.run, JOB, RunState.RUNNING, RunSettings(), now))
    for path in segment_files(folder):
        done.segments += 1
        for pages in _batches(found_pages(path)):
            done.pages += len(pages)
            done.added += await store.segments.adopt(done.run, path.name, pages)
        note(f"{path.name}: {done.pages} pages read, {done.added} added")
    reason = f"{done.added} pages rebuilt from the archive"
    await store.runs.move(done.run, RunState.FINISHED, reason, clock.now())
    return done


def _batches(found: Iterator[ArchivedPage]) -> Iterator[list[ArchivedPage]]:
    while batch := list(islice(found, BATCH)):
        yield batch
