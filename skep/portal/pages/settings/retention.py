"""Retention: limits, what is stored, what the next step deletes, what was deleted."""

from __future__ import annotations

from urllib.parse import quote

from skep.portal.page import Done, Outcome, Page, PageCall, View
from skep.portal.pages.settings.tabs import tabs_of
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
from skep.portal.show.numbers import duration, size
from skep.portal.show.tables import Column, Row
from skep.wire.api.storage import Plan, Storage

_PATH = "/settings/retention"
#: Planned deletions that are shown; the count is of all.
SHOWN = 100
KEPT = (
    Column("settings.column_kind"),
    Column("settings.column_size", is_number=True),
    Column("settings.column_age_limit", is_number=True),
    Column("settings.column_size_limit", is_number=True),
)
PLANNED = (
    Column("settings.column_run"),
    Column("settings.column_kind"),
    Column("settings.column_size", is_number=True),
    Column("settings.column_ended"),
    Column("settings.column_why"),
)
DELETED = (
    Column("settings.column_kind"),
    Column("settings.column_runs", is_number=True),
    Column("settings.column_amount", is_number=True),
    Column("settings.column_last_deleted"),
)


async def show(call: PageCall) -> Outcome:
    found = await parts(storage=call.api.storage.show(), plan=call.api.storage.plan())
    storage, plan = found["storage"], found["plan"]
    data = {
        "tabs": tabs_of("retention"),
        "storage": storage,
        "plan": plan,
        "kept_columns": KEPT,
        "kept": [] if isinstance(storage, Refused) else _kept(call, storage),
        "planned_columns": PLANNED,
        "planned": [] if isinstance(plan, Refused) else _planned(call, plan),
        "deleted_columns": DELETED,
        "deleted": [] if isinstance(storage, Refused) else _deleted(call, storage),
        "acts": _acts(call, plan),
    }
    return View("pages/settings_retention.html", data)


def _kept(call: PageCall, storage: Storage) -> list[Row]:
    none = call.texts.plain("settings.no_limit")
    return [
        Row(
            one.kind,
            (
                text_cell(_kind(call, one.kind)),
                size_cell(one.bytes),
                Cell("number", duration(one.age_limit) if one.age_limit else none),
                Cell("number", size(one.bytes_limit) if one.bytes_limit else none),
            ),
        )
        for one in storage.kept
    ]


def _kind(call: PageCall, kind: str) -> str:
    key = f"settings.kind_{kind}"
    return call.texts.plain(key) if call.texts.has(key) else kind


def _planned(call: PageCall, plan: Plan) -> list[Row]:
    return [
        Row(
            f"{one.run} {one.kind}",
            (
                name_cell(one.run, f"/runs/{quote(one.run, safe='')}"),
                text_cell(_kind(call, one.kind)),
                size_cell(one.volume),
                time_cell(one.ended_at, call.now),
                text_cell(one.why),
            ),
        )
        for one in plan.items[:SHOWN]
    ]


def _deleted(call: PageCall, storage: Storage) -> list[Row]:
    return [
        Row(
            one.kind,
            (
                text_cell(_kind(call, one.kind)),
                count_cell(one.runs),
                size_cell(one.n) if one.kind == "bodies" else count_cell(one.n),
                time_cell(one.last_at, call.now),
            ),
        )
        for one in storage.deleted
    ]


def _acts(call: PageCall, plan: Plan | Refused) -> list[Act]:
    if isinstance(plan, Refused) or not plan.items or not call.may("admin"):
        return []
    return [
        Act(
            "settings.act_clean",
            f"{_PATH}/clean",
            destroys=True,
            confirm="settings.confirm_clean",
            command=command("storage", "--clean"),
            api_path="/api/v1/storage/clean",
        )
    ]


async def clean(call: PageCall) -> Outcome:
    done = await call.api.storage.clean()
    return Done(call.texts.plain("settings.said_clean", n=done.runs), _PATH)


PAGES = (
    Page("settings", _PATH, show),
    Page("settings", "/settings/retention/clean", clean, method="POST"),
)
