"""Raises alerts about results that stay on an agent's disk, from its heartbeats. Run by centers.

It only raises alerts, a limited number for each agent and kind; the agent keeps retrying.
"""

from __future__ import annotations

from skep.model.fleet.agent import Vitals
from skep.runtime.clock import Clock
from skep.store.ports import Store

#: Seconds that a report may wait on a disk before an alert is raised.
UNSENT_AFTER = 60.0
#: Seconds before the same alert is raised again.
ALERT_EVERY = 600.0


class UnsentResults:
    """Call `heard` with each heartbeat; cheap while there is nothing to report."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._told: dict[tuple[str, str], float] = {}

    async def heard(self, agent: str, vitals: Vitals) -> None:
        if vitals.outbox_age >= UNSENT_AFTER:
            detail = (
                f"{vitals.outbox} results wait on its disk, the oldest for"
                f" {vitals.outbox_age:.0f} s; see the agent's log"
            )
            await self._tell("results_unsent", agent, detail)
        if vitals.set_aside:
            detail = (
                f"{vitals.set_aside} results of another identity were set aside in its outbox,"
                " because its file agent-id or session was lost; their requests are sent again"
            )
            await self._tell("results_set_aside", agent, detail)

    async def _tell(self, kind: str, agent: str, detail: str) -> None:
        now = self._clock.monotonic()
        self._told = {key: at for key, at in self._told.items() if now - at < ALERT_EVERY}
        if (kind, agent) not in self._told:
            self._told[kind, agent] = now
            await self._store.alerts.raise_(kind, agent, detail, self._clock.now())
