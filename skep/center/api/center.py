"""Lanes, alerts and the ledger of all runs: the state of the installation.

Run by centers. Reading changes nothing; only `audit` counts rows, which is slow.
"""

from __future__ import annotations

from typing import Any

import msgspec

from skep.center.api.listing import is_one_of, listed
from skep.center.api.path_names import run_name
from skep.center.http.authentication import Role
from skep.center.http.endpoint import Call, Endpoint
from skep.errors import InvalidInput, UnknownRun
from skep.lanes.dispatch import lane_limits
from skep.model.lane import Lane
from skep.model.monitoring.alerts import Alert
from skep.wire.api.center import (
    GET_LANES,
    GET_LEDGER,
    GET_REPAIRS,
    LIST_ALERTS,
    AlertLine,
    Alerts,
    LaneLine,
    LanesView,
    LedgerView,
    RepairLine,
    RepairsView,
    WhichAlerts,
    WhichLedger,
)


async def ledger(call: Call) -> LedgerView:
    """The ledger of all runs or of one."""
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
    """What an operator should look at."""
    query: WhichAlerts = call.query
    states = {"open": ["firing"], "resolved": ["resolved"]}.get(query.state, [])
    if query.filter is None:
        found = await call.services.store.monitoring.alerts.find(states, query.limit)
        return Alerts(_alert_lines(call, found))
    terms = [is_one_of("state", *states)] if states else []
    found, more = await listed(call, "alerts", *terms)
    return Alerts(_alert_lines(call, found), **more)


def _alert_lines(call: Call, found: list[Alert]) -> list[dict[str, Any]]:
    now = call.services.clock.now()
    return [msgspec.to_builtins(_alert_line(alert, now)) for alert in found]


def _alert_line(alert: Alert, now: float) -> AlertLine:
    names = [name for name in AlertLine.__struct_fields__ if name != "state"]
    values = {name: getattr(alert, name) for name in names}
    return AlertLine(**values, state=alert.shown_state(now))


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
    Endpoint(GET_LEDGER, Role.VIEWER, ledger, "The ledger", errors=(UnknownRun,)),
    Endpoint(GET_LANES, Role.VIEWER, lanes, "The lanes"),
    Endpoint(GET_REPAIRS, Role.VIEWER, repairs, "The self-check"),
    Endpoint(LIST_ALERTS, Role.VIEWER, alerts, "Alerts", errors=(InvalidInput,)),
)
