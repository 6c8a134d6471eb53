"""Groups of users: the labels that limit what their members see."""

from __future__ import annotations

import re
from urllib.parse import quote

from skep.errors import NotFound
from skep.model.people.user import UserGroup
from skep.portal.page import Done, Outcome, Page, PageCall, View
from skep.portal.pages.settings.tabs import tabs_of
from skep.portal.panels import Refused, part
from skep.portal.show.acts import Act
from skep.portal.show.cells import Cell, name_cell, time_cell
from skep.portal.show.commands import command
from skep.portal.show.forms import typed
from skep.portal.show.tables import Column, Row
from skep.wire.api.people.users import GroupLabels

_LIST = "/settings/groups"
COLUMNS = (
    Column("settings.column_group"),
    Column("settings.column_created"),
    Column("settings.column_labels"),
)


async def show(call: PageCall) -> Outcome:
    found = await part(call.api.users.groups())
    data = {
        "tabs": tabs_of("groups"),
        "columns": COLUMNS,
        "rows": found if isinstance(found, Refused) else [_row(call, one) for one in found.items],
        "command": command("group", "ls"),
    }
    return View("pages/settings_groups.html", data, every=10)


def _row(call: PageCall, group: UserGroup) -> Row:
    labels = Cell("labels", [(one, one) for one in group.labels])
    href = _path(group.name)
    return Row(
        group.name,
        (name_cell(group.name, href), time_cell(group.created_at, call.now), labels),
        href,
    )


def _path(name: str) -> str:
    return f"{_LIST}/{quote(name, safe='')}"


async def show_one(call: PageCall) -> Outcome:
    name = call.path["group"]
    found = next((one for one in (await call.api.users.groups()).items if one.name == name), None)
    if found is None:
        raise NotFound(f"there is no group {name[:64]!r}")
    delete = Act(
        "settings.act_delete",
        f"{_path(name)}/delete",
        destroys=True,
        confirm="settings.confirm_delete_group",
        command=command("group", "rm", name),
        api_path=f"/api/v1/groups/{quote(name, safe='')}",
        method="DELETE",
    )
    data = {"group": found, "acts": [delete], "path": _path(name)}
    return View("pages/settings_group.html", data, title=name)


async def save(call: PageCall) -> Outcome:
    """Create a group, or replace its labels."""
    name = call.path.get("group") or call.field("name").strip()
    labels = [one for one in re.split(r"[\s,]+", call.field("labels")) if one]
    await call.api.users.set_group(name, typed({"labels": labels}, GroupLabels))
    return Done(call.texts.plain("settings.said_saved", name=name), _LIST)


async def delete(call: PageCall) -> Outcome:
    name = call.path["group"]
    await call.api.users.delete_group(name)
    return Done(call.texts.plain("settings.said_delete", name=name), _LIST)


PAGES = (
    Page("settings", _LIST, show),
    Page("settings", _LIST, save, method="POST"),
    Page("settings", "/settings/groups/{group}", show_one),
    Page("settings", "/settings/groups/{group}", save, method="POST"),
    Page("settings", "/settings/groups/{group}/delete", delete, method="POST"),
)
