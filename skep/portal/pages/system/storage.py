"""Storage: free space of disks, the archive, logs, and which jobs fill it."""

from __future__ import annotations

from urllib.parse import quote

from skep.portal.page import Outcome, Page, PageCall, View
from skep.portal.pages.system.tabs import tabs_of
from skep.portal.show.cells import code_cell, name_cell, size_cell
from skep.portal.show.details import Pair
from skep.portal.show.numbers import number, size
from skep.portal.show.tables import Column, Row
from skep.wire.api.storage import Storage

DISKS = (Column("system.column_folder"), Column("system.column_free", is_number=True))
JOBS = (
    Column("system.column_job"),
    Column("system.column_bodies", is_number=True),
    Column("system.column_logs", is_number=True),
    Column("system.column_rows", is_number=True),
    Column("system.column_sum", is_number=True),
)
#: Jobs that are shown, the largest first.
SHOWN = 50


async def show(call: PageCall) -> Outcome:
    storage = await call.api.storage.show()
    figures = [
        Pair("system.archive_size", size(storage.archive_bytes)),
        Pair("system.segments", number(storage.segments)),
        Pair("system.log_size", f"{size(storage.log_bytes)} / {size(storage.log_limit)}"),
        Pair("system.free_limit", size(storage.free_limit)),
    ]
    data = {
        "tabs": tabs_of("storage"),
        "storage": storage,
        "figures": figures,
        "disk_columns": DISKS,
        "disks": [
            Row(one.folder, (code_cell(one.folder, 80), size_cell(one.free)))
            for one in storage.disks
        ],
        "job_columns": JOBS,
        "jobs": _jobs(storage),
    }
    return View("pages/system_storage.html", data)


def _jobs(storage: Storage) -> list[Row]:
    by_kind = {one.kind: one.by_job for one in storage.kept}
    sums = {
        job: [by_kind.get(kind, {}).get(job, 0) for kind in ("bodies", "logs", "rows")]
        for jobs in by_kind.values()
        for job in jobs
    }
    largest = sorted(sums, key=lambda job: (-sum(sums[job]), job))[:SHOWN]
    return [_job(job, sums[job]) for job in largest]


def _job(job: str, sizes: list[int]) -> Row:
    href = f"/jobs/{quote(job, safe='')}" if job else ""
    return Row(job, (name_cell(job, href), *map(size_cell, sizes), size_cell(sum(sizes))))


PAGES = (Page("system", "/system/storage", show),)
