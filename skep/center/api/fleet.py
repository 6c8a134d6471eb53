"""Lanes, alerts and the ledger over all: the state of the whole.

Run by centers. Reading changes nothing; only `audit` counts rows, and is slow for it.
"""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import Meta

from skep.center.api.names import RUN_NAME, run_name
from skep.center.auth import Role
from skep.center.endpoint import Call, Endpoint
from skep.errors import UnknownRun
from skep.lanes.dispatch import lane_limits
from skep.model.bounds import exact
from skep.model.lane import Lane
from skep.model.ledger import Ledger


class LaneLine(msgspec.Struct):
    """Requests in a lane and its bound."""

    lane: str
    requests: int
    limit: int


class LanesView(msgspec.Struct):
    """All lanes, first drained first."""

    items: list[LaneLine]


class Alerts(msgspec.Struct):
    """Newest first."""

    items: list[dict[str, Any]]


class RepairLine(msgspec.Struct):
    """One kind of difference between two records of a center."""

    kind: str
    #: Differences that were repaired since the center started.
    repaired: int
    #: Differences at the latest look that are not repaired. Work in flight may be one of them
    #: for a moment.
    open: int
    #: What was repaired last.
    last: str = ""


class RepairsView(msgspec.Struct):
    """What the self-check of the center that answers has found."""

    center: str
    items: list[RepairLine]


class LedgerView(msgspec.Struct):
    """The equation: accepted = the sum of all states."""

    ledger: Ledger
    total: int
    unaccounted: int
    line: str


class WhichLedger(msgspec.Struct):
    """`audit=true` counts rows instead of reading the running counts: slow and independent."""

    #: Count rows instead of reading the running counts: slow and independent.
    audit: bool = False
    #: Only this run; default: all runs.
    run: Annotated[str, Meta(extra_json_schema=exact(pattern=RUN_NAME))] | None = None


async def ledger(call: Call) -> LedgerView:
    """Over all runs or for one."""
    query: WhichLedger = call.query
    ledgers = call.services.store.ledgers
    run = None if query.run is None else run_name(query.run)
    found = await (ledgers.audit(run) if query.audit else ledgers.read(run))
    return LedgerView(found, found.total, found.unaccounted, found.line())


async def lanes(call: Call) -> LanesView:
    """How full the lanes are."""
    sizes = await call.services.bus.lanes.sizes()
    limits = lane_limits(call.services.settings.lanes)
    return LanesView([LaneLine(lane.label, sizes.get(lane, 0), limits[lane]) for lane in Lane])


async def alerts(call: Call) -> Alerts:
    """What a person should look at."""
    return Alerts(await call.services.store.alerts.recent(100))


async def repairs(call: Call) -> RepairsView:
    """What the self-check of this center found and repaired."""
    found = call.services.repairs
    kinds = sorted({*found.done, *found.open})
    lines = [
        RepairLine(kind, found.done[kind], found.open.get(kind, 0), found.last.get(kind, ""))
        for kind in kinds
    ]
    return RepairsView(call.services.name, lines)


ENDPOINTS = (
    Endpoint(
        "GET",
        "/api/v1/ledger",
        Role.VIEWER,
        ledger,
        "The ledger",
        gives=LedgerView,
        asks=WhichLedger,
        errors=(UnknownRun,),
    ),
    Endpoint("GET", "/api/v1/lanes", Role.VIEWER, lanes, "The lanes", gives=LanesView),
    Endpoint("GET", "/api/v1/repairs", Role.VIEWER, repairs, "The self-check", gives=RepairsView),
    Endpoint("GET", "/api/v1/alerts", Role.VIEWER, alerts, "Alerts", gives=Alerts),
)
