"""A simulated agent that works for runs: it calls the real handlers of any center that answers.

It registers, sends heartbeats with its held blocks and known runs, leases, reports some outcomes as
failures, and forgets runs that a center reports as ended. It dies at times and loses its memory
except for the known runs.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from random import Random
from typing import Any

import msgspec

from skep.center.api.agent_protocol import work as api
from skep.errors import Fenced, SkepError
from skep.model.block import BlockReport, Leased
from skep.model.fleet.agent import Registration, Vitals
from skep.model.request import Outcome, Work
from skep.testing.simulation.gates import NoAnswer
from skep.testing.simulation.run_centers import RunCenter
from skep.wire import messages

REGISTER, BEAT, LEASE, REPORT = api.ENDPOINTS[:4]
_works = msgspec.msgpack.Decoder(list[Work])
#: Maximum held blocks, and the share of downloads that fail.
HOLDS, FAILING = 2, 0.1


class RunAgent:
    """Call `start`; `kill` restarts it after a while."""

    def __init__(self, name: str, token: str, centers: Sequence[RunCenter], rng: Random) -> None:
        self.name = name
        self._token = token
        self._centers = centers
        self._rng = rng
        self.runs: set[str] = set()
        self._held: dict[int, Leased] = {}
        self._session, self._life = 0, 0
        self._task: asyncio.Task[None] | None = None

    def start(self, after: float = 0.0) -> None:
        self._held, self._session = {}, 0
        self._life += 1
        self._task = asyncio.get_running_loop().create_task(self._live(after))

    def kill(self) -> None:
        if self._task is not None:
            self._task.cancel()
        self.start(self._rng.uniform(0.5, 20.0))

    async def _live(self, after: float) -> None:
        await asyncio.sleep(after)
        while True:
            try:
                await self._once()
            except Fenced:  # a late registration of an earlier process: this one is newer
                self._held, self._session = {}, 0
                self._life += 1
            except (NoAnswer, SkepError):
                pass
            await asyncio.sleep(self._rng.uniform(0.2, 0.6))

    async def _once(self) -> None:
        if not self._session:
            await self._register()
        await self._heartbeat()
        if len(self._held) < HOLDS:
            await self._lease()
        for block in list(self._held.values()):
            await asyncio.sleep(self._rng.expovariate(1.0))
            await self._report(block)

    async def _call(self, row: Any, body: Any) -> Any:
        headers = {messages.SESSION_HEADER: str(self._session)} if self._session else {}
        center = self._rng.choice(self._centers)
        return await center.call(row, body, token=self._token, headers=headers)

    async def _register(self) -> None:
        about = Registration(self.name, self.name, kinds=("http",))
        mark = f"{self.name} {self._life}"
        message = messages.Register(about, mark=mark, runs=sorted(self.runs))
        reply: messages.Registered = await self._call(REGISTER, message)
        self._session = reply.session
        self.runs -= set(reply.released)

    async def _heartbeat(self) -> None:
        held = [block.held for block in self._held.values()]
        vitals = Vitals(free_memory=2**30)
        message = messages.Heartbeat(self.name, vitals, held, runs=sorted(self.runs))
        reply: messages.HeartbeatReply = await self._call(BEAT, message)
        if not reply.known:
            self._session = 0
        for block in reply.lost:
            self._held.pop(block, None)
        self.runs -= set(reply.released) - {block.run for block in self._held.values()}

    async def _lease(self) -> None:
        reply: messages.LeaseReply = await self._call(
            LEASE, messages.LeaseAsk(self.name, HOLDS, 0.0)
        )
        self._held |= {block.id: block for block in reply.blocks}
        self.runs |= {block.run for block in reply.blocks}

    async def _report(self, block: Leased) -> None:
        works = [work for work in _works.decode(block.body) if work.id not in block.skip]
        outcomes = [self._outcome(work) for work in works]
        report = messages.Report(self.name, [BlockReport(block.id, block.token, outcomes)])
        reply: messages.ReportReply = await self._call(REPORT, report)
        assert len(reply.verdicts) == 1
        self._held.pop(block.id, None)

    def _outcome(self, work: Work) -> Outcome:
        if self._rng.random() < FAILING:
            return Outcome(work.id, "network", 0)
        return Outcome(work.id, "", 200)
