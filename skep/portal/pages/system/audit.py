"""The audit log: who changed what, with a filter; one row with what was there before and after."""

from __future__ import annotations

import json
from functools import partial

from skep.errors import NotFound
from skep.model.people.audit import AuditRow
from skep.portal.lists import read_list, views_for
from skep.portal.page import Outcome, Page, PageCall, View
from skep.portal.pages.system.tabs import tabs_of
from skep.portal.panels import Refused, part
from skep.portal.show.cells import code_cell, name_cell, state_cell, text_cell, time_cell
from skep.portal.show.commands import command
from skep.portal.show.details import Pair
from skep.portal.show.names import held
from skep.portal.show.tables import PAGE_ROWS, Column, Filter, Listing, Row
from skep.wire.api.people.audit import AuditPage, WhichAudit

_LIST = "/system/audit"
_DIGITS = 18
COLUMNS = (
    Column("system.column_action"),
    Column("system.column_outcome"),
    Column("system.column_who"),
    Column("system.column_object"),
    Column("system.column_at"),
    Column("system.column_address"),
    Column("system.column_detail"),
)
OFFERED = (
    ("system.offer_refused", "outcome:refused"),
    ("system.offer_failed", "outcome:failed"),
    ("system.offer_today", "since:24h"),
)


async def show(call: PageCall) -> Outcome:
    wanted = Filter.of("audit", call.query, OFFERED)
    answer = await part(read_list(wanted, partial(_ask, call), AuditPage(items=[])))
    found, wanted = (AuditPage(items=[]), wanted) if isinstance(answer, Refused) else answer
    words = ("audit", *((wanted.text,) if wanted.text else ()))
    listing = Listing(
        _LIST,
        wanted,
        COLUMNS,
        [_row(call, one) for one in found.items],
        found,
        field="action",
        empty="system_audit",
        command=command(*words),
        api_path="/api/v1/audit",
        views=await views_for(call, "audit"),
    )
    data = {
        "tabs": tabs_of("audit"),
        "listing": listing,
        "refused": answer if isinstance(answer, Refused) else None,
    }
    return View("pages/system_audit.html", data, every=10)


async def _ask(call: PageCall, wanted: Filter) -> AuditPage:
    return await call.api.audit.list(WhichAudit(wanted.text, PAGE_ROWS, page=wanted.page))


def _number(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdecimal() and len(text) <= _DIGITS else None


def _row(call: PageCall, row: AuditRow) -> Row:
    href = f"{_LIST}/{row.id}"
    times = f"\N{MULTIPLICATION SIGN}{row.times}" if row.times > 1 else ""
    cells = (
        name_cell(row.action, href, times),
        state_cell(str(row.outcome)),
        name_cell(row.who, limit=30),
        code_cell(row.object),
        time_cell(row.at, call.now),
        code_cell(row.address),
        text_cell(row.detail),
    )
    return Row(str(row.id), cells, href)


async def show_one(call: PageCall) -> Outcome:
    row = await _find(call, call.path["row"])
    pairs = [
        Pair("system.column_who", row.who),
        Pair("system.column_object", row.object),
        Pair("system.column_detail", row.detail),
        Pair("system.column_address", row.address),
        Pair("system.column_client", row.client),
        Pair("system.column_credential", row.credential),
        Pair("system.column_center", row.center),
        Pair("system.column_times", str(row.times)),
    ]
    data = {
        "row": row,
        "pairs": [Pair(one.key, held(one.value)) for one in pairs if one.value],
        "before": _lines(row.before),
        "after": _lines(row.after),
    }
    return View("pages/system_audit_row.html", data, title=row.action)


async def _find(call: PageCall, name: str) -> AuditRow:
    number = _number(name)
    if number:
        found = await call.api.audit.list(WhichAudit(limit=1, after=number + 1))
        if found.items and found.items[0].id == number:
            return found.items[0]
    raise NotFound(f"there is no row {name[:50]!r} in the audit log")


def _lines(text: str) -> list[str]:
    """JSON in lines, to compare; a text that was cut is shown as it is."""
    try:
        return json.dumps(json.loads(text), indent=2, ensure_ascii=False).splitlines()
    except ValueError:
        return text.splitlines()


PAGES = (
    Page("system", _LIST, show),
    Page("system", "/system/audit/{row}", show_one),
)
