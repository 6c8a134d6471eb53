"""The pair matrix of ends of runs: placement x end x place of the blocks, on one center.

For tests. Each combination starts a job with a spider, brings the blocks of its run to their place,
ends the run, checks that nothing of it is left, and runs another run. Combinations share a center.
The process of a spider only sleeps: the test itself submits the requests.
"""

from __future__ import annotations

import asyncio
from asyncio.subprocess import DEVNULL
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from skep.agent.agent_folder import AgentFolder
from skep.center.http.authentication import digest_of
from skep.jobs.runs.spider_process import Spawner, SpiderCommand, SpiderProcess
from skep.model.block import BlockReport, Leased
from skep.model.request import Outcome
from skep.model.states import RunState
from skep.testing.doubles.manual_agents import PLACING, SITE, ManualAgent
from skep.testing.grounds.centers import RunningCenter, works_of
from skep.testing.polling import until
from skep.wire.messages import Heartbeat, HeartbeatReply

PLACEMENTS: Mapping[str, dict[str, Any]] = {
    "any": {},
    "group": {"strategy": "any", "group": "default"},
    "fixed": {"strategy": "fixed", "n": 1},
    "chained": {"strategy": "chained", "n": 1},
    "hashed": {"strategy": "hashed"},
}
ENDS = ("finish", "cancel", "page limit", "failure", "pause")
PLACES = ("waiting", "lanes", "leased", "delayed")
BUSES = ("memory", "redis")
#: The state in the ledger for each place.
STATE_OF: Mapping[str, str] = {
    "waiting": "waiting",
    "lanes": "queued",
    "leased": "leased",
    "delayed": "delayed",
}
#: A lane holds the blocks of one run. Checks are a second apart: on a busy machine a call to Redis
#: may take longer than the time between two closer checks. A spider is ended immediately. A delay
#: lasts until the run is ended.
SETTINGS: Mapping[str, Any] = {
    **PLACING,
    "lanes_reconcile_every": 1.0,
    "lanes_low_limit": 20,
    "lanes_retry_first": 6.0,
    "center_self_check_every": 1.0,
    "jobs_keep_every": 0.2,
    "jobs_end_seconds": 0.0,
}
REQUESTS, BLOCK = 20, 5
SPIDER = """
import skep


class Idle(skep.Spider):
    name = "idle"

    def start(self):
        return []
"""


class SleepingSpiders(Spawner):
    """Real child processes with real tokens that only sleep."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, folder, {})
        #: Every token that was issued, by run.
        self.tokens: dict[str, list[str]] = {}

    async def start(self, order: SpiderCommand) -> SpiderProcess:
        self.tokens.setdefault(order.run, []).append(order.token)
        sleeping = await asyncio.create_subprocess_exec(
            *("sleep", "600"), stdin=DEVNULL, stdout=DEVNULL, start_new_session=True
        )
        return SpiderProcess(sleeping, Path("/dev/null"), boxed=False)


class Ground:
    """A center, a manual agent with real files, and the runs of the combinations. `folder` contains
    the spiders of jobs."""

    def __init__(self, center: RunningCenter, workspace: AgentFolder, folder: Path) -> None:
        self.center = center
        self.workspace = workspace
        self.hand = ManualAgent(center, "a")
        self.spiders = SleepingSpiders(folder)
        self._folder = folder
        self._count = 0

    async def open(self) -> None:
        self.workspace.open()
        (self._folder / "idle.py").write_text(SPIDER)
        self.center.services.jobs.supervisor._spawner = self.spiders  # noqa: SLF001 - no other way in
        await self.hand.start()

    async def close(self) -> None:
        await self.hand.die()

    async def combination(self, placement: str, end: str, place: str) -> None:
        """Raises AssertionError if anything of the run is left."""
        self._count += 1
        job = f"{placement}-{end}-{place}-{self._count}".replace(" ", "-")
        run = await self._start(job, PLACEMENTS[placement])
        await self._bring(run, place)
        await self._is_there(run, PLACEMENTS[placement])
        if end == "pause":
            await self._pause_and_go_on(run, PLACEMENTS[placement])
        await self._end(run, "finish" if end == "pause" else end)
        if end == "pause":
            done = await self.center.ledger(run)
            assert done.done == done.accepted == REQUESTS, done.line()
        await self._nothing_left(run)
        await self._another_run_gets_through(f"{job}-next")

    # -- to the place of the blocks

    async def _start(self, job: str, placement: dict[str, Any]) -> str:
        """Start a run of a job and its spider; the agent knows it from the start."""
        document = {
            "spider": {"path": "idle.py"},
            "placement": placement,
            "settings": {"block_size": BLOCK, "retries": 3},
        }
        answer = await self.center.admin.put(f"/api/v1/jobs/{job}", document)
        assert answer.status == 200, answer.content
        answer = await self.center.admin.post(f"/api/v1/jobs/{job}/run")
        run = str(answer.json()["run"])
        settings = await self.center.services.store.runs.settings_of([run])
        self.workspace.allocate(run, settings[run])
        await self._until_driven(run)
        return run

    async def _until_driven(self, run: str) -> None:
        children = self.center.services.jobs.supervisor.children

        async def started() -> bool:
            return run in children

        await until(started)

    async def _open_run(self, run: str) -> None:
        settings = {"block_size": BLOCK, "retries": 3}
        answer = await self.center.admin.put(f"/api/v1/runs/{run}", {"settings": settings})
        assert answer.status == 200, answer.content

    async def _bring(self, run: str, place: str) -> None:
        if place == "waiting":
            # A full lane makes them wait.
            await self._open_run(f"{run}-full")
            await self._put(f"{run}-full", REQUESTS)
            await self._until_lanes(REQUESTS)
        await self._put(run, REQUESTS)
        if place != "waiting":
            await self._until_lanes(REQUESTS)
        if place in {"leased", "delayed"}:
            blocks = await self._lease()
            if place == "delayed":
                for block in blocks:
                    await self._fail(block)
        ledger = await self.center.ledger(run)
        assert getattr(ledger, STATE_OF[place]) == REQUESTS, f"not {place}: {ledger.line()}"

    async def _is_there(self, run: str, placement: dict[str, Any]) -> None:
        """Assert that the run has everything that must be gone at its end."""
        open_ = [one.run for one in await self.center.services.store.allocations.open()]
        assert (run in open_) == bool(placement), open_
        assert self.workspace.remembers(run)
        assert await self._good_tokens(run) == 1

    async def _good_tokens(self, run: str) -> int:
        digests = [digest_of(token) for token in self.spiders.tokens.get(run, [])]
        return len(await self.center.services.store.tokens.find_many(digests))

    async def _put(self, run: str, count: int) -> None:
        await self.center.put(run, [f"{SITE}/{run}/{n}" for n in range(count)])

    async def _until_lanes(self, count: int) -> None:
        lanes = self.center.services.bus.lanes

        async def full() -> bool:
            return sum((await lanes.sizes()).values()) >= count

        await until(full)

    async def _lease(self) -> list[Leased]:
        found: list[Leased] = []
        async with asyncio.timeout(15):
            while sum(block.size for block in found) < REQUESTS:
                found += await self.hand.lease(wait=1.0)
        return found

    async def _fail(self, block: Leased) -> None:
        outcomes = [Outcome(work.id, "network", 0) for work in works_of(block)]
        self.hand.hand.held.pop(block.id, None)
        await self.hand.hand.report(BlockReport(block.id, block.token, outcomes))

    # -- the end

    async def _pause_and_go_on(self, run: str, placement: dict[str, Any]) -> None:
        """A paused run leaves the lanes and its spider ends; continued, everything returns."""
        await self.center.services.intake.move(run, RunState.PAUSED)
        await self._give_back(run)
        ids = {ref.id for ref in await self._entries(run)}
        assert not ids, f"a paused run is in lanes: {ids}"
        await until(lambda: self._rests(run))
        await self.center.services.intake.move(run, RunState.RUNNING)
        await self._until_driven(run)
        await self._is_there(run, placement)
        async with asyncio.timeout(30):
            while (await self.center.ledger(run)).done < REQUESTS:
                for block in await self.hand.lease(wait=0.5):
                    await self.hand.finish(block)

    async def _rests(self, run: str) -> bool:
        return not await self._good_tokens(run) and await self._lanes_equal_the_store()

    async def _end(self, run: str, end: str) -> None:
        services = self.center.services
        if end in {"finish", "cancel"}:
            assert (await self.center.admin.post(f"/api/v1/runs/{run}/{end}")).status == 200
        elif end == "page limit":
            # Like a driver at its page limit: the run ends and its open requests are cancelled.
            driver = await services.store.checkpoints.take_over(run)
            body = {"driver": driver, "state": "finished", "reason": "page_limit"}
            answer = await self.center.admin.post(f"/requestqueue/{run}/end", body)
            assert answer.status == 200, answer.content
        else:
            await services.intake.move(run, RunState.FAILED, "a test")
        await self._give_back(run)

    async def _give_back(self, run: str) -> None:
        """Return the agent's held blocks, as an agent does at the end or the pause of a run."""
        for block in [one for one in self.hand.hand.held.values() if one.run == run]:
            self.hand.hand.held.pop(block.id)
            await self.hand.hand.give_back(block)

    # -- after the end

    async def _entries(self, run: str) -> Sequence[Any]:
        refs, cursor = await self.center.services.bus.lanes.scan("", 1000)
        assert not cursor
        return [ref for ref in refs if ref.run == run]

    async def _lanes_equal_the_store(self) -> bool:
        services = self.center.services
        ready = {ref.id for ref in await services.store.blocks.claimable(1000)}
        return await services.bus.lanes.ids() == ready

    async def _nothing_left(self, run: str) -> None:
        """Assert that nothing is left, also on the agent's disk, within ten seconds."""
        services = self.center.services

        async def whole() -> bool:
            self._forget((await self._heartbeat()).released)
            return (
                await self._lanes_equal_the_store()
                and not await self._entries(run)
                and all(one.run != run for one in await services.store.allocations.open())
                and not self.workspace.remembers(run)
                and not await self._good_tokens(run)
            )

        await until(whole, seconds=10.0)
        facts = await services.store.waits.run(run)
        assert not facts.in_hands, f"{run}: leased to {facts.in_hands}"
        assert (await services.store.checks.find("tokens", "", 1000))[0] == []
        assert not services.repairs.done, services.repairs.last

    async def _heartbeat(self) -> HeartbeatReply:
        holding = [block.held for block in self.hand.hand.held.values()]
        beat = Heartbeat("a", self.hand.vitals, holding, runs=self.workspace.names())
        return (await self.hand.hand.call("heartbeat", beat)).read(HeartbeatReply)

    def _forget(self, runs: Sequence[str]) -> None:
        for run in runs:
            self.workspace.release(run)

    async def _another_run_gets_through(self, run: str) -> None:
        await self._open_run(run)
        await self._put(run, BLOCK)
        left = BLOCK
        async with asyncio.timeout(15):
            while left:
                for block in await self.hand.lease(wait=1.0):
                    await self.hand.finish(block)
                    left -= block.size if block.run == run else 0
        assert (await self.center.admin.post(f"/api/v1/runs/{run}/finish")).status == 200
