"""Figures over time for charts. Run by centers; reading changes nothing."""

from __future__ import annotations

from skep.center.api.path_names import run_name
from skep.center.http.authentication import Role
from skep.center.http.endpoint import Call, Endpoint, Scoping
from skep.center.http.scoping import check_run
from skep.errors import Forbidden, InvalidInput
from skep.model.monitoring.buckets import POINTS, bucket, resolution_for, step_for
from skep.model.monitoring.series import BY_NAME, KNOWN
from skep.monitoring.charts import in_points, lines_of
from skep.wire.api.monitoring.series import (
    GET_SERIES,
    LIST_SERIES,
    Chart,
    ChartLine,
    KnownSeries,
    WhichSeries,
)

#: Series of one call, and rows that it reads.
AT_ONCE = 10
ROWS = 20_000
HOUR = 3600.0


async def get_series(call: Call) -> Chart:
    """One or more series with common times."""
    query: WhichSeries = call.query
    names = _names(query)
    await _check_scope(call, query.run)
    now = call.services.clock.now()
    until = now if query.until is None else query.until
    since = max(until - HOUR, 0.0) if query.since is None else query.since
    if since >= until:
        raise InvalidInput(f"from ({since:g}) must be before to ({until:g})")
    resolution = resolution_for(since, until, now, query.step)
    step = step_for(since, until, resolution, query.step)
    start = bucket(since, step)
    count = min(-int(-(until - start) // step), POINTS + 1)
    end = start + count * step
    rows = await call.services.store.monitoring.series.read(
        resolution.step, query.run, start, end, ROWS
    )
    points = in_points(rows, start, step, count)
    lines = [
        ChartLine(name, label, BY_NAME[name].unit, line)
        for name in names
        for label, line in lines_of(name, points, step).items()
    ]
    return Chart(start, end, step, lines)


def _names(query: WhichSeries) -> list[str]:
    names = list(dict.fromkeys(name.strip() for name in query.name.split(",")))
    if len(names) > AT_ONCE:
        raise InvalidInput(f"a call has at most {AT_ONCE} series; this one has {len(names)}")
    for name in names:
        if name not in BY_NAME:
            known = ", ".join(sorted(BY_NAME))
            raise InvalidInput(f"{name[:60]!r} is not a series; use one of {known}")
        if query.run and not BY_NAME[name].of_runs:
            raise InvalidInput(f"{name} exists for all runs together, not for one; leave out `run`")
    return names


async def _check_scope(call: Call, run: str) -> None:
    """A caller with a scope sees figures of its runs; those of all runs have others in them."""
    if not call.who.scope:
        return
    if not run:
        raise Forbidden("these figures are of all runs, and your scope is limited; send `run`")
    await check_run(call, run_name(run))


async def list_series(_: Call) -> KnownSeries:
    """Every series."""
    return KnownSeries(list(KNOWN))


ENDPOINTS = (
    Endpoint(
        GET_SERIES,
        Role.VIEWER,
        get_series,
        "Figures over time",
        errors=(InvalidInput,),
        tag="monitoring",
        scoped=Scoping.FILTERED,
        notes="Figures are kept in steps of 10 s for an hour, of 1 min for a day and of 10 min for "
        "90 days. An answer has at most 1,000 points per line; the step grows with the time.",
    ),
    Endpoint(
        LIST_SERIES,
        Role.VIEWER,
        list_series,
        "List series",
        tag="monitoring",
        scoped=Scoping.OWN,
    ),
)
