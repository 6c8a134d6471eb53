"""Run control: pushes changes of a run's state to every process that works for it. Centers only.

The run is changed in the store first; correctness never depends on the push. Then every process
of the run is notified: agents through their sockets, spiders and generators through the center
that supervises them, drivers elsewhere through the read that they wait in. Each acknowledges, and
the caller gets the acknowledgements at any center.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from random import Random

import msgspec

from skep.bus.ports import Bus
from skep.errors import BusDown, UnknownRun
from skep.fleet.roster import Roster
from skep.jobs.apps.app_supervisor import Tell
from skep.model.jobs.app import InstanceState, desired_state_for
from skep.model.jobs.generator_progress import REQUESTS, GenerationState
from skep.model.jobs.job import JobRun
from skep.model.run import Run
from skep.model.states import RunState
from skep.runtime.clock import Clock
from skep.runtime.ids import new_id
from skep.store.ports import Store
from skep.wire.api.runs import Reached
from skep.wire.messages import Command

log = logging.getLogger(__name__)

CHANNEL = "runs"
#: The name of a spider that no center supervises: `skep run` on some machine.
ELSEWHERE = "elsewhere"
#: Acknowledgements of a process: it has started, or it has ended.
BEGAN, ENDED = "began", "ended"
#: Maximum seconds to wait for acknowledgements.
LONGEST = 60.0
#: Seconds for which the next read of a driver counts as the acknowledgement of a change.
FRESH = 60.0
#: Drivers that are remembered; above this number only those of the last minute.
DRIVERS_KEPT = 1000
#: Seconds of silence after which a driver without a limit is not expected to acknowledge.
DRIVER_SILENT = 60.0
#: Commands to agents by the state of a run. Started downloads of a finished run may complete; the
#: others are returned, otherwise an ended run would keep agents from other runs.
AGENTS_HEAR = {
    RunState.PAUSED: "pause",
    RunState.FAILED: "pause",
    RunState.FINISHED: "pause",
    RunState.CANCELLED: "release",
}


class StateMessage(msgspec.Struct):
    """A message on the bus. Without a kind: the run is in this state now. With a kind: a process
    acknowledges, with a state, `began` or `ended`, or the ticket of a command to an agent."""

    run: str
    says: str
    origin: str
    kind: str = ""


class AcknowledgementWait:
    """Collects the acknowledgements of one change."""

    def __init__(self, runs: Collection[str], clock: Clock) -> None:
        self.runs = frozenset(runs)
        self._clock = clock
        self._began = clock.monotonic()
        self._answers: dict[tuple[str, str, str], float] = {}
        self._expected: list[tuple[tuple[str, str, str], Reached]] = []
        self._news = asyncio.Event()

    def expect(self, run: str, kind: str, name: str, says: str) -> None:
        self._expected.append(((run, kind, says), Reached(run, kind, name)))

    def only(self, runs: Collection[str]) -> None:
        """Expect no acknowledgements of other runs: they were not changed."""
        self._expected = [one for one in self._expected if one[1].run in runs]

    def hear(self, word: StateMessage) -> None:
        """Store an acknowledgement, even if it is not expected yet: some come at once."""
        self._answers.setdefault((word.run, word.kind, word.says), self._clock.monotonic())
        self._news.set()

    async def gathered(self, seconds: float) -> list[Reached]:
        """All expected processes, after all have acknowledged or the time is over."""
        with suppress(TimeoutError):
            async with asyncio.timeout(min(seconds, LONGEST)):
                while not all(key in self._answers for key, _ in self._expected):
                    self._news.clear()
                    await self._news.wait()
        for key, reached in self._expected:
            if key in self._answers:
                reached.obeyed = True
                reached.seconds = round(self._answers[key] - self._began, 3)
        return [reached for _, reached in self._expected]


class RunControl:
    """One center's part in run control. `wake` wakes the tasks that wait for changes of a run on
    this center, `follow` updates the lanes of a run."""

    def __init__(
        self,
        center: str,
        store: Store,
        bus: Bus,
        tell: Tell,
        roster: Roster,
        clock: Clock,
        rng: Random,
        wake: Callable[[str], None],
        follow: Callable[[Run], Awaitable[None]] | None = None,
    ) -> None:
        self._follow = follow
        self._center = center
        self._store = store
        self._bus = bus
        self._tell = tell
        self._roster = roster
        self._clock = clock
        self._rng = rng
        self._wake = wake
        self._ears: list[AcknowledgementWait] = []
        #: Changes of the last minute that a driver may not know yet: (state, time).
        self._fresh: dict[str, tuple[str, float]] = {}
        #: The state that drivers which read here assume for their runs.
        self._knows: dict[str, tuple[str, float]] = {}

    @contextmanager
    def listening(self, runs: Collection[str]) -> Iterator[AcknowledgementWait]:
        """Start before the run is changed, so that no acknowledgement is missed."""
        ear = AcknowledgementWait(runs, self._clock)
        self._ears.append(ear)
        try:
            yield ear
        finally:
            self._ears.remove(ear)

    # -- changes

    async def moved(self, run: Run) -> None:
        """Notify all processes of a run about its new state, without waiting for them."""
        if self._follow is not None:
            await self._follow(run)
        await self._note(run.id, run.state)
        await self._publish(StateMessage(run.id, run.state, self._center))
        if (command := AGENTS_HEAR.get(run.state)) is not None:
            await self._tell_agents(run.id, command)
        live = [one for one in await self._store.apps.of(run.id) if not one.ended]
        for agent in sorted({one.agent for one in live if one.agent}):
            await self._tell(agent, Command("apps"))

    async def look_again(self, run: str) -> None:
        """Wake the processes of a run for another change, such as a restart."""
        self._wake(run)
        await self._publish(StateMessage(run, "", self._center))

    async def _tell_agents(self, run: str, command: str) -> None:
        """Notify the agents that hold blocks of the run; dead agents lose their leases anyway."""
        try:
            hands = (await self._store.waits.run(run)).in_hands
        except UnknownRun:
            return
        now = self._clock.now()
        for hand in hands:
            view = self._roster.view(hand.agent)
            ticket = new_id("word", now, self._rng)
            if view is None or self._roster.alive(hand.agent):
                for ear in self._about(run):
                    ear.expect(run, "agent", hand.agent, ticket)
            await self._tell(hand.agent, Command(command, run, ticket=ticket))

    def _about(self, run: str) -> list[AcknowledgementWait]:
        return [ear for ear in self._ears if run in ear.runs]

    async def _note(self, run: str, state: str) -> None:
        self._fresh = self._young(self._fresh)
        self._fresh[run] = (state, self._clock.monotonic())
        self._wake(run)
        # A driver also reads the store by itself and may have been faster than the bus.
        if self._knows.get(run, ("", 0.0))[0] == state:
            await self.driver_knows(run, state)

    def _young(self, words: dict[str, tuple[str, float]]) -> dict[str, tuple[str, float]]:
        oldest = self._clock.monotonic() - FRESH
        return {name: one for name, one in words.items() if one[1] >= oldest}

    async def hear(self, payload: bytes) -> None:
        """Process a message of another center on the bus."""
        try:
            word = msgspec.msgpack.decode(payload, type=StateMessage)
        except msgspec.DecodeError as error:
            log.warning("ignoring an unreadable message about a run: %s", error)
            return
        if word.origin == self._center:
            return
        if word.kind:
            self._answer(word)
        elif word.says:
            await self._note(word.run, word.says)
        else:
            self._wake(word.run)

    # -- acknowledgements

    async def acknowledged(self, run: str, kind: str, says: str) -> None:
        """A process acknowledged at this center; the caller may wait at another one."""
        word = StateMessage(run, says, self._center, kind)
        self._answer(word)
        await self._publish(word)

    async def tickets(self, tickets: Sequence[str]) -> None:
        """An agent has executed the commands with these tickets."""
        for ticket in tickets:
            await self.acknowledged("", "agent", ticket)

    async def driver_knows(self, run: str, state: str) -> None:
        """The driver of a run reads and knows the state of the run."""
        if len(self._knows) > DRIVERS_KEPT:
            self._knows = self._young(self._knows)
        self._knows[run] = (state, self._clock.monotonic())
        fresh = self._fresh.get(run)
        if fresh is not None and fresh[0] == state:
            del self._fresh[run]
            await self.acknowledged(run, "spider", state)

    async def instance_is(self, run: str, no: int, state: str) -> None:
        """An agent reports the state of an instance; for a while a caller may wait for it."""
        if run in self._fresh:
            await self.acknowledged(run, "instance", f"{no} {state}")

    def _answer(self, word: StateMessage) -> None:
        for ear in self._ears:
            if word.kind != "agent":
                ear.hear(word)
                continue
            for run in ear.runs:  # a ticket belongs to one agent and one run
                ear.hear(msgspec.structs.replace(word, run=run))

    async def _publish(self, word: StateMessage) -> None:
        with suppress(BusDown):  # the others then read the store a little later
            await self._bus.signals.publish(CHANNEL, msgspec.msgpack.encode(word))

    # -- processes of a run

    async def expect(self, ear: AcknowledgementWait, run: str, to: RunState | None) -> None:
        """Expect the processes of a run except its agents, each with its acknowledgement. None is
        a restart. Call it before the run is changed, while its processes are known."""
        await self._expect_instances(ear, run, to)
        kept = await self._store.job_runs.get(run)
        if kept is None or not kept.open:
            if await self._driven_elsewhere(run):
                ear.expect(run, "spider", ELSEWHERE, BEGAN if to is None else to)
            return
        begins = to in {None, RunState.RUNNING}
        if kept.holder or begins:
            for kind in await self._kept_processes(kept):
                ear.expect(run, kind, kept.holder, BEGAN if begins else ENDED)

    async def _expect_instances(
        self, ear: AcknowledgementWait, run: str, to: RunState | None
    ) -> None:
        if to is None:
            return
        for one in await self._store.apps.of(run):
            wanted = desired_state_for(to, one.halted)
            begins = wanted is InstanceState.RUNNING and one.state is not InstanceState.DONE
            if begins or (not one.ended and one.agent):
                name = f"{one.no} on {one.agent or 'no agent yet'}"
                ear.expect(run, "instance", name, f"{one.no} {wanted}")

    async def _driven_elsewhere(self, run: str) -> bool:
        try:
            found = await self._store.waits.run(run)
        except UnknownRun:
            return False
        driver = found.driver
        # A driver ends with its run: none is left to acknowledge that the run continues.
        over = found.run.state not in {RunState.RUNNING, RunState.PAUSED}
        if driver is None or driver.patience is None or over:
            return False
        silent = self._clock.now() - driver.heard_at
        return silent <= (driver.patience or DRIVER_SILENT)

    async def _kept_processes(self, kept: JobRun) -> list[str]:
        job = (await self._store.jobs.revision(kept.job, kept.revision)).job
        if job.spider is not None:
            return ["spider"]
        found = await self._store.generations.of(kept.run)
        feeding = any(one.n != REQUESTS and one.state is not GenerationState.DONE for one in found)
        return ["generators"] if feeding else []
