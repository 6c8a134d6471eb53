"""Archive: disks, archived segments, what fills the storage, and what retention will delete."""

from __future__ import annotations

from collections.abc import Iterable
from urllib.parse import quote

from skep.model.retention import DeletionSum, Expired
from skep.portal.page import Done, NavPlace, Outcome, Page, PageCall, View
from skep.portal.panels import Refused, parts
from skep.portal.show.acts import Act
from skep.portal.show.cells import (
    Cell,
    count_cell,
    name_cell,
    size_cell,
    text_cell,
    time_cell,
)
from skep.portal.show.commands import command
from skep.portal.show.details import Pair
from skep.portal.show.numbers import NONE, duration, number, size
from skep.portal.show.tables import Column, Row
from skep.wire.api.storage import Folder, Kept, Plan, Storage

KEPT = (
    Column("archive.column_kind"),
    Column("archive.column_bytes", is_number=True),
    Column("archive.column_age", is_number=True),
    Column("archive.column_limit", is_number=True),
    Column("archive.column_jobs"),
)
DISKS = (Column("archive.column_folder"), Column("archive.column_free", is_number=True))
DELETED = (
    Column("archive.column_kind"),
    Column("archive.column_runs", is_number=True),
    Column("archive.column_amount", is_number=True),
    Column("archive.column_last"),
)
PLAN = (
    Column("archive.column_run"),
    Column("archive.column_kind"),
    Column("archive.column_bytes", is_number=True),
    Column("archive.column_ended"),
    Column("archive.column_why"),
)
#: Jobs that a line names, and lines of the plan.
JOBS, PLANNED = 3, 50


async def show(call: PageCall) -> Outcome:
    found = await parts(storage=call.api.storage.show(), plan=call.api.storage.plan())
    storage, plan = found["storage"], found["plan"]
    data = {
        "storage": storage,
        "plan": plan,
        "acts": _acts(call),
        "disks": (DISKS, []),
        "kept": (KEPT, []),
        "deleted": (DELETED, []),
        "planned": (PLAN, [] if isinstance(plan, Refused) else _planned(plan, call.now)),
        "figures": [] if isinstance(storage, Refused) else _figures(storage, plan),
        "command": command("storage"),
    }
    if not isinstance(storage, Refused):
        data |= _tables(call, storage)
    return View("pages/archive.html", data, every=60)


def _tables(call: PageCall, storage: Storage) -> dict[str, object]:
    return {
        "disks": (DISKS, [_disk(one) for one in storage.disks]),
        "kept": (KEPT, [_kept(call, one) for one in storage.kept]),
        "deleted": (DELETED, [_deleted(call, one) for one in storage.deleted]),
    }


def _figures(storage: Storage, plan: Plan | Refused) -> list[Pair]:
    due = NONE if isinstance(plan, Refused) else number(plan.runs)
    return [
        Pair("archive.segments", number(storage.segments)),
        Pair("archive.bytes", size(storage.archive_bytes)),
        Pair("archive.free", size(min((one.free for one in storage.disks), default=None))),
        Pair("archive.reserve", size(storage.free_limit)),
        Pair("archive.logs", size(storage.log_bytes)),
        Pair("archive.log_limit", size(storage.log_limit) if storage.log_limit else NONE),
        Pair("archive.due", due),
    ]


def _acts(call: PageCall) -> list[Act]:
    if not call.may("admin"):
        return []
    clean = Act(
        "archive.act_clean",
        "/archive/clean",
        destroys=True,
        confirm="archive.confirm_clean",
        command=command("storage", "--clean"),
        api_path="/api/v1/storage/clean",
    )
    return [clean]


def _disk(one: Folder) -> Row:
    return Row(one.folder, (name_cell(one.folder, limit=60), size_cell(one.free)))


def _kind(call: PageCall, word: str) -> Cell:
    key = f"archive.kind_{word}"
    return text_cell(call.texts.plain(key) if call.texts.has(key) else word)


def _kept(call: PageCall, one: Kept) -> Row:
    largest = sorted(one.by_job.items(), key=lambda pair: (-pair[1], pair[0]))[:JOBS]
    cells = (
        _kind(call, one.kind),
        size_cell(one.bytes),
        Cell("number", duration(one.age_limit) if one.age_limit else NONE),
        size_cell(one.bytes_limit or None),
        text_cell(_jobs(largest, len(one.by_job) - JOBS)),
    )
    return Row(one.kind, cells)


def _jobs(largest: Iterable[tuple[str, int]], more: int) -> str:
    text = ", ".join(f"{name or NONE} {size(volume)}" for name, volume in largest)
    return f"{text}, +{more}" if more > 0 else text


def _deleted(call: PageCall, one: DeletionSum) -> Row:
    amount = size_cell(one.n) if one.kind == "bodies" else count_cell(one.n)
    when = time_cell(one.last_at, call.now)
    return Row(one.kind, (_kind(call, one.kind), count_cell(one.runs), amount, when))


def _planned(plan: Plan, now: float) -> list[Row]:
    return [_planned_row(one, now) for one in plan.items[:PLANNED]]


def _planned_row(one: Expired, now: float) -> Row:
    cells = (
        name_cell(one.run, f"/runs/{quote(one.run, safe='')}"),
        text_cell(one.kind),
        size_cell(one.volume),
        time_cell(one.ended_at, now),
        text_cell(one.why),
    )
    return Row(f"{one.run}-{one.kind}", cells)


async def clean(call: PageCall) -> Outcome:
    """Delete now what is due."""
    done = await call.api.storage.clean()
    text = call.texts.plain("archive.said_clean", n=done.runs, segments=done.segments)
    return Done(text, "/archive")


PAGES = (
    Page("archive", "/archive", show, nav=NavPlace("operate", 35, "z")),
    Page("archive", "/archive/clean", clean, method="POST", under="archive"),
)
