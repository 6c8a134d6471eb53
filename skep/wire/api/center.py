"""The ledger, the lanes, the self-check and the alerts of a center: types and routes."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from skep.model.ledger import Ledger
from skep.model.message_bounds import FilterText, exact
from skep.model.monitoring.alerts import AlertFacts
from skep.model.run import RUN_NAME
from skep.wire.api.caller import Resource
from skep.wire.api.listing import Listed, PageKey
from skep.wire.api.route import Route


class LaneLine(msgspec.Struct):
    """Requests in a lane and its limit."""

    lane: str
    requests: int
    limit: int


class LanesView(msgspec.Struct):
    """All lanes, in the order in which they are drained."""

    items: list[LaneLine]


class AlertLine(AlertFacts, frozen=True):
    """Something that a person should see, and how often it happened."""

    #: firing, acknowledged, muted or resolved.
    state: str = "firing"
    severity: str = "warning"
    #: When the state changed last.
    changed_at: float = 0.0
    acknowledged_at: float = 0.0
    acknowledged_by: str = ""
    muted_until: float = 0.0


class WhichAlerts(msgspec.Struct):
    """Which alerts to list; without a filter the newest ones."""

    #: `open`: all but resolved ones; default: all.
    state: Literal["", "open", "resolved"] = ""
    #: Maximum number of alerts.
    limit: Annotated[int, Meta(ge=1, le=1000)] = 100
    #: A filter, see the page on filters. With it, even an empty one, pages follow `page`.
    filter: FilterText | None = None
    #: `next_page` of the last answer; empty = the first page.
    page: PageKey = ""


class Alerts(Listed):
    """Newest first."""

    items: list[dict[str, Any]]

    def lines(self) -> list[AlertLine]:
        """The same, typed. The API's description has them as plain objects."""
        return msgspec.convert(self.items, list[AlertLine])


class RepairLine(msgspec.Struct):
    """One kind of difference between two records of a center."""

    kind: str
    #: Differences that were repaired since the center started.
    repaired: int
    #: Differences at the latest check that are not repaired. Work in flight can be one of them
    #: for a moment.
    open: int
    #: The latest repair.
    last: str = ""


class RepairsView(msgspec.Struct):
    """The results of the self-check of the center that answers."""

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


GET_LEDGER = Route(
    "get_ledger", "GET", "/api/v1/ledger", LedgerView, asks=WhichLedger, seconds=60.0
)
GET_LANES = Route("get_lanes", "GET", "/api/v1/lanes", LanesView)
GET_REPAIRS = Route("get_repairs", "GET", "/api/v1/repairs", RepairsView)
LIST_ALERTS = Route("list_alerts", "GET", "/api/v1/alerts", Alerts, asks=WhichAlerts)


class OverviewClient(Resource):
    """The state of the center as a whole."""

    async def ledger(self, asks: WhichLedger | None = None) -> LedgerView:
        """The ledger."""
        return await self._caller.call(GET_LEDGER, asks=asks)

    async def lanes(self) -> LanesView:
        """The lanes."""
        return await self._caller.call(GET_LANES)

    async def repairs(self) -> RepairsView:
        """The self-check."""
        return await self._caller.call(GET_REPAIRS)

    async def alerts(self, asks: WhichAlerts | None = None) -> Alerts:
        """Alerts."""
        return await self._caller.call(LIST_ALERTS, asks=asks)
