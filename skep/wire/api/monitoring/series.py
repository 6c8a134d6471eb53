"""Figures over time: types and routes."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from skep.model.message_bounds import exact
from skep.model.monitoring.series import SeriesInfo
from skep.model.run import RUN_NAME
from skep.wire.api.caller import Resource
from skep.wire.api.route import Route

Moment = Annotated[float, Meta(ge=0, le=1e11)]


class WhichSeries(
    msgspec.Struct, rename={"since": "from", "until": "to"}, forbid_unknown_fields=True
):
    """Which series, of which time. Times are seconds since the epoch."""

    #: Names of series, separated by commas; at most 10.
    name: Annotated[str, Meta(min_length=1, max_length=500)]
    #: Only this run; empty = all runs.
    run: Annotated[
        str, Meta(max_length=200, extra_json_schema=exact(pattern=f"({RUN_NAME})|^$"))
    ] = ""
    #: Start; default: an hour before `to`.
    since: Moment | None = None
    #: End; default: now.
    until: Moment | None = None
    #: Minimum seconds between two points; 0 = as fine as there is.
    step: Annotated[int, Meta(ge=0, le=10**9)] = 0


class ChartLine(msgspec.Struct):
    """One line of a chart; point N is at `from` + N x `step`, null where there are no figures."""

    #: Name of the series.
    name: str
    #: The label of the line, such as a status or a host; empty = the series has none.
    label: str
    #: Unit of the values.
    unit: str
    #: The values, in the order of time.
    points: list[float | None]


class Chart(msgspec.Struct, rename={"since": "from", "until": "to"}):
    """Lines with their common times."""

    since: int
    until: int
    #: Seconds between two points.
    step: int
    #: One line per series and label.
    lines: list[ChartLine]


class KnownSeries(msgspec.Struct):
    """Every series that a center knows."""

    items: list[SeriesInfo]


GET_SERIES = Route(
    "get_series",
    "GET",
    "/api/v1/series",
    Chart,
    asks=WhichSeries,
    seconds=30.0,
    query_example={"name": "requests.done,latency", "from": 1767225600.0, "to": 1767229200.0},
)
LIST_SERIES = Route("list_series", "GET", "/api/v1/series/names", KnownSeries)


class SeriesClient(Resource):
    """Calls the routes of this file."""

    async def show(self, asks: WhichSeries | None = None) -> Chart:
        """The points of one or more series."""
        return await self._caller.call(GET_SERIES, asks=asks)

    async def list(self) -> KnownSeries:
        """Every series."""
        return await self._caller.call(LIST_SERIES)
