"""`skep demo break`: an agent is killed during a crawl, and nothing is lost.

The center runs in this process; the agents are separate processes, one of which is killed with
-9. The site counts requests, so the result does not depend on the counts of Skep.
"""

from __future__ import annotations

import os
import re
import signal
import sys
from asyncio.subprocess import Process
from collections.abc import Mapping
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

import msgspec

from skep.cli.terminal.exit_codes import ExitCode
from skep.cli.terminal.follow_run import follow, ledger_of
from skep.cli.terminal.output import say, show, show_json
from skep.cli.terminal.progress import Progress
from skep.cli.terminal.wait_outcome import exit_of
from skep.embed.demo_center import DEMO_RUN, LONGEST, DemoCenter
from skep.errors import Unavailable
from skep.model.ledger import Ledger
from skep.model.run import AskedSettings
from skep.runtime.clock import Clock, SystemClock

if TYPE_CHECKING:
    from skep.wire.api.agents import AgentLine

VICTIM, OTHER = "first", "second"
JOIN_SECONDS = 60.0
STEP = 0.1
#: Requests per block: small enough that both agents hold several blocks.
BLOCKS = 20
#: Share of the pages that are done when the agent is killed: both agents work, and most of the
#: work is left.
KILL_AT = 0.25
#: An agent is late after this many heartbeat intervals.
LATE_HEARTBEATS = 1.5


class BreakResult(msgspec.Struct):
    """The result, counted in three places: ledger, audit and site."""

    accepted: int
    done: int
    lost: int
    repeated: int
    unaccounted: int
    blocks_returned: int
    seconds_to_dead: float | None
    seconds: float
    ledger: Ledger

    def line(self) -> str:
        return (
            f"{self.accepted} accepted, {self.done} done, "
            f"{self.lost} lost, {self.repeated} repeated"
        )


async def break_an_agent(pages: int, latency: float, data: Path | None, as_json: bool) -> int:
    """Return the exit code of a command that waits, or 1 if the counts differ."""
    clock, rng = SystemClock(), Random()  # noqa: S311 - jitter and names, no secrets
    async with DemoCenter(data, clock, rng) as stage:
        site = await stage.start_site(pages, latency)
        victim = await stage.start_agent_process(VICTIM)
        await stage.start_agent_process(OTHER)
        await _both_joined(stage, clock)
        say(f"center {stage.center.url} · site {site} · {pages} pages · two agents")
        progress = Progress(sys.stderr, clock)
        scene = BreakScenario(stage, victim, progress, clock)
        paths = [f"/page/{number}" for number in range(pages)]
        settings = AskedSettings(block_size=max(5, pages // BLOCKS))
        await stage.submit(DEMO_RUN, [site + path for path in paths], settings)
        await follow(stage.client, DEMO_RUN, progress, clock, LONGEST, scene.look)
        verdict = await scene.verdict(paths, await stage.hits(site))
    _report(verdict, as_json)
    return _exit_of(verdict)


def _exit_of(verdict: BreakResult) -> ExitCode:
    found = exit_of(verdict.ledger)
    unseen = verdict.lost and found is ExitCode.OK
    return ExitCode.FAILED if unseen or verdict.unaccounted else found


async def _agents(stage: DemoCenter) -> dict[str, AgentLine]:
    """Agents by name; of several with one name, the one with the latest heartbeat."""
    answer = await stage.client.api.agents.list()
    lines = sorted(answer.items, key=lambda line: -line.last_beat_age)
    return {line.agent.registration.name: line for line in lines}


async def _both_joined(stage: DemoCenter, clock: Clock) -> None:
    deadline = clock.monotonic() + JOIN_SECONDS
    while not {VICTIM, OTHER} <= set(await _agents(stage)):
        if clock.monotonic() > deadline:
            raise Unavailable(f"the agents did not join; see {stage.center.folder}/*.log")
        await clock.sleep(STEP)


class BreakScenario:
    """Observes the crawl, kills the agent at the right moment, and prints what happens."""

    def __init__(
        self, stage: DemoCenter, victim: Process, progress: Progress, clock: Clock
    ) -> None:
        self._stage = stage
        self._victim = victim
        self._progress = progress
        self._clock = clock
        self._began = clock.monotonic()
        self._killed_at: float | None = None
        self._state = "alive"
        self._returned = 0
        self._dead_after: float | None = None

    async def look(self, ledger: Ledger) -> None:
        """Called each time the ledger is read."""
        if self._killed_at is None:
            if ledger.done >= KILL_AT * ledger.accepted:
                self._kill()
            return
        await self._watch_victim(self._clock.monotonic() - self._killed_at)
        await self._watch_blocks(self._clock.monotonic() - self._killed_at)

    def _kill(self) -> None:
        os.kill(self._victim.pid, signal.SIGKILL)
        self._killed_at = self._clock.monotonic()
        self._progress.note(f"kill -9 {self._victim.pid} (agent {VICTIM})")

    async def _watch_victim(self, since: float) -> None:
        line = (await _agents(self._stage))[VICTIM]
        every = self._stage.center.settings.center.heartbeat_every
        late = line.last_beat_age > LATE_HEARTBEATS * every
        state = "dead" if not line.alive else "late" if late else "alive"
        if state == self._state:
            return
        self._state = state
        if state == "dead":
            self._dead_after = since
        self._progress.note(f"after {since:.1f} s agent {VICTIM} is {state}")

    async def _watch_blocks(self, since: float) -> None:
        text = await self._stage.client.api.health.metrics()
        found = re.search(rb"^skep_lease_expired_total (\S+)", text, re.MULTILINE)
        returned = int(float(found[1])) if found else 0
        if returned > self._returned:
            self._returned = returned
            self._progress.note(f"after {since:.1f} s {returned} blocks were returned for {OTHER}")

    async def verdict(self, paths: list[str], hits: Mapping[str, int]) -> BreakResult:
        """A request is lost if it is missing in the rows or in the counts of the site."""
        audit = await ledger_of(self._stage.client, DEMO_RUN, audit=True)
        running = await ledger_of(self._stage.client, DEMO_RUN)
        never = sum(1 for path in paths if not hits.get(path))
        return BreakResult(
            accepted=audit.accepted,
            done=audit.done,
            lost=max(audit.accepted - audit.done, never),
            repeated=sum(max(0, hits.get(path, 0) - 1) for path in paths),
            unaccounted=audit.unaccounted or running.unaccounted or int(audit != running),
            blocks_returned=self._returned,
            seconds_to_dead=None if self._dead_after is None else round(self._dead_after, 1),
            seconds=round(self._clock.monotonic() - self._began, 1),
            ledger=audit,
        )


def _report(verdict: BreakResult, as_json: bool) -> None:
    if as_json:
        show_json(verdict)
        return
    show(verdict.ledger.line())
    show(verdict.line())
    show("next: `skep up` starts a center and an agent that keep running")
