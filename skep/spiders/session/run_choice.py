"""Which run a session drives: a new one, one that was named, or the newest one of the spider.

Asks the center and changes nothing there: the engine opens the run.
"""

from __future__ import annotations

import re
from random import Random

from skep.errors import Conflict, NotFound, UnknownRun
from skep.model.run import Run
from skep.model.states import RunState
from skep.runtime.clock import Clock
from skep.runtime.ids import new_id
from skep.spiders.driving.center_retries import CenterRetries
from skep.spiders.session.plan import SessionPlan
from skep.wire.api.runs import RunPage
from skep.wire.client.api import CenterApi

RUNS_LOOKED_AT = 1000
UNFINISHED = frozenset({RunState.RUNNING, RunState.PAUSED, RunState.FAILED})
#: A run's name has 64 characters, and 17 of them are for the moment and for chance.
NAME_PART = 46

_NOT_IN_A_NAME = re.compile(r"[^A-Za-z0-9._-]+")


class RunChoice:
    """`choose` the run of a plan."""

    def __init__(self, plan: SessionPlan, api: CenterApi, clock: Clock, rng: Random) -> None:
        self._plan = plan
        self._api = api
        self._clock = clock
        self._rng = rng
        self._retries = CenterRetries(clock, rng, plan.spider.options.center_tries)

    async def choose(self) -> tuple[str, bool]:
        """(the run's name, whether it is finished already). Raises Conflict for a new name that
        a run has, and NotFound when there is no run to go on with."""
        if self._plan.resume is not None:
            run = await self._to_resume(self._plan.resume)
            return run.id, run.state is RunState.FINISHED
        if self._plan.run is None:
            part = _NOT_IN_A_NAME.sub("-", self._plan.spider.name).strip("-._")[:NAME_PART]
            return new_id(part or "run", self._clock.now(), self._rng), False
        if (known := await self._known(self._plan.run)) is not None:
            raise Conflict(
                f"run {known.id} is there already and {known.state}; go on with it by "
                f"--resume {known.id}, or choose another name"
            )
        return self._plan.run, False

    async def _to_resume(self, name: str) -> Run:
        if not name:
            return await self._newest()
        known = await self._known(name)
        if known is None:
            raise UnknownRun(f"there is no run {name!r}; `skep runs` lists them")
        return known

    async def _newest(self) -> Run:
        """The newest unfinished run of the spider, or else the newest finished one."""
        spider, page = self._plan.spider.name, RunPage(RUNS_LOOKED_AT)
        listed = await self._retries.call(lambda: self._api.runs.list(page))
        mine = [run for run in listed.items if run.job == spider]
        unfinished = [run for run in mine if run.state in UNFINISHED]
        finished = [run for run in mine if run.state is RunState.FINISHED]
        if not unfinished and not finished:
            raise NotFound(f"spider {spider} has no run to go on with; leave --resume out")
        return (unfinished or finished)[0]

    async def _known(self, name: str) -> Run | None:
        try:
            view = await self._retries.call(lambda: self._api.runs.show(name))
        except UnknownRun:
            return None
        return view.run
