"""Runs: types and routes."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from skep.model.labels import Labels
from skep.model.ledger import Ledger
from skep.model.message_bounds import FilterText
from skep.model.run import AskedSettings, Run
from skep.model.run_figures import RunFigures
from skep.wire.api.caller import Resource
from skep.wire.api.deliveries import DeliveryLine
from skep.wire.api.listing import Listed, PageKey
from skep.wire.api.placement import SeatLine
from skep.wire.api.route import Route

#: Maximum seconds to wait for an answer.
WAIT_MAX = 60.0
RunVerb = Literal["pause", "continue", "finish", "cancel"]


class Reached(msgspec.Struct):
    """A process that belongs to a run, and whether it has acknowledged."""

    run: str
    #: agent, spider, generators or instance (of an application).
    kind: str
    #: The agent, the center that supervises it, or `elsewhere`; for an instance its number first.
    name: str
    obeyed: bool = False
    #: Seconds that it took; None = not acknowledged yet.
    seconds: float | None = None


class RunPage(msgspec.Struct):
    """Which runs to list: `limit` of them, created before a time."""

    #: Maximum number of runs, newest first.
    limit: Annotated[int, Meta(ge=1, le=1000)] = 50
    #: Only runs created before this time, in seconds since the epoch.
    before: Annotated[float, Meta(ge=0, le=1e15)] | None = None
    #: A filter, see the page on filters. With it, even an empty one, pages follow `page`.
    filter: FilterText | None = None
    #: `next_page` of the last answer; empty = the first page.
    page: PageKey = ""


class Runs(Listed):
    """Newest first; continue with `before=next` for older ones."""

    items: list[Run]
    next: float | None = None


class OpenRun(msgspec.Struct, forbid_unknown_fields=True):
    """The call that opens a run; `{}` takes every default."""

    job: str = ""
    settings: AskedSettings = AskedSettings()
    #: For filters, such as `{"team": "a"}`.
    labels: Labels = msgspec.field(default_factory=dict)


class RunView(msgspec.Struct):
    """A run with its ledger and its figures."""

    run: Run
    ledger: Ledger
    unaccounted: int
    figures: RunFigures
    #: The agents that were chosen for it; empty when any agent may work for it.
    chosen: list[SeatLine] = msgspec.field(default_factory=list)
    #: The progress of the deliveries of its items.
    deliveries: list[DeliveryLine] = msgspec.field(default_factory=list)


class Waiting(msgspec.Struct):
    """Seconds to wait until every process of the run has acknowledged; 0 = do not wait."""

    #: Seconds to wait until every process has acknowledged; 0 = answer at once.
    wait: Annotated[float, Meta(ge=0, le=WAIT_MAX)] = 0.0


class Steered(RunView):
    """A run after a command, and the processes that received it."""

    reached: list[Reached] = msgspec.field(default_factory=list)


class Revived(msgspec.Struct):
    """Number of dead requests that wait again."""

    requests: int


LIST_RUNS = Route("list_runs", "GET", "/api/v1/runs", Runs, asks=RunPage)
OPEN_RUN = Route(
    "open_run",
    "PUT",
    "/api/v1/runs/{run}",
    RunView,
    takes=OpenRun,
    example={"settings": {"retries": 3, "priority": 2}},
)
GET_RUN = Route("get_run", "GET", "/api/v1/runs/{run}", RunView)
REVIVE_RUN = Route("revive_run", "POST", "/api/v1/runs/{run}/revive", Revived)
RESTART_RUN = Route(
    "restart_run", "POST", "/api/v1/runs/{run}/restart", Steered, asks=Waiting, seconds=60.0
)
CHANGE_RUN = Route(
    "change_run", "POST", "/api/v1/runs/{run}/{verb}", Steered, asks=Waiting, seconds=60.0
)


class RunsClient(Resource):
    """Calls the routes of this file."""

    async def list(self, asks: RunPage | None = None) -> Runs:
        """List runs."""
        return await self._caller.call(LIST_RUNS, asks=asks)

    async def open(self, run: str, body: OpenRun) -> RunView:
        """Open a run."""
        return await self._caller.call(OPEN_RUN, run, body=body, starts_run=True)

    async def show(self, run: str) -> RunView:
        """Show a run and its ledger."""
        return await self._caller.call(GET_RUN, run)

    async def revive(self, run: str) -> Revived:
        """Send the dead requests of a run again."""
        return await self._caller.call(REVIVE_RUN, run)

    async def restart(self, run: str, asks: Waiting | None = None) -> Steered:
        """Start the process that drives a run anew."""
        return await self._caller.call(RESTART_RUN, run, asks=asks)

    async def change(self, run: str, verb: RunVerb, asks: Waiting | None = None) -> Steered:
        """Pause, continue, finish or cancel a run."""
        return await self._caller.call(CHANGE_RUN, run, verb, asks=asks)
