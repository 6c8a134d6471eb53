"""A simulated agent: real held blocks, and downloads that take some time.

It can be killed (its memory is lost) and frozen (its memory is outdated): after both it continues
with what it knows, which the fencing tokens must make harmless.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from skep.agent.hosts.rate_limited_requests import host_in
from skep.agent.work.held_blocks import HeldBlock, HeldBlocks
from skep.downloaders.ports import Fetched
from skep.model.block import BlockReport, Held, Leased
from skep.model.fleet.agent import Registration, Vitals
from skep.model.hosts.host import is_own
from skep.model.request import Outcome, Work
from skep.store.ports.blocks import SettleResult
from skep.testing.simulation.centers import CenterParts
from skep.testing.simulation.network import Lost, Network
from skep.testing.simulation.world import World

_works = msgspec.msgpack.Decoder(list[Work])
REPORT_EVERY = 0.5
MEAN_DOWNLOAD = 4.0
#: The share of failures at hosts with a rate limit after which the agent defers their requests.
TROUBLE = 0.2


class Witness:
    """Observes every lease and every accepted report.

    It stores the newest token of each block, so that it can detect when a center accepted a report
    of an agent that had been fenced out.
    """

    def __init__(self) -> None:
        self._newest: dict[int, int] = {}
        self.broken = ""

    async def lease(self, rooms: CenterParts, agent: str, want: int) -> list[Leased]:
        blocks = await rooms.leases.lease(agent, want)
        for leased in blocks:
            if leased.token <= self._newest.get(leased.id, 0):
                self.broken = f"block {leased.id} was leased twice under token {leased.token}"
            self._newest[leased.id] = leased.token
        return blocks

    async def take(
        self, rooms: CenterParts, agent: str, reports: list[BlockReport]
    ) -> list[SettleResult]:
        verdicts = await rooms.ingest.take(agent, reports)
        for report, verdict in zip(reports, verdicts, strict=True):
            stale = report.token < self._newest.get(report.block, 0)
            if verdict.verdict == "stored" and stale:
                self.broken = f"{agent} wrote to block {report.block} with token {report.token}"
        return verdicts


class SimAgent:
    """Registers, sends heartbeats, leases, downloads, reports; dies and freezes."""

    def __init__(
        self, name: str, world: World, network: Network, witness: Witness, failing: float
    ) -> None:
        self.name = name
        self._world = world
        self._network = network
        self._witness = witness
        self._failing = failing
        self._life = 0
        self._frozen_until = 0.0
        self.fetched: dict[int, int] = {}
        self.verdicts: dict[str, int] = {}
        self.deferred = 0
        self.start()

    def start(self) -> None:
        """Start without blocks."""
        self._life += 1
        self._registered = False
        self.holding = HeldBlocks(self._world.monotonic)
        self._unsent: list[BlockReport] = []
        life = self._life
        for first, every, step in (
            (0.0, 1.0, self._heartbeat),
            (0.2, 0.5, self._lease),
            (0.3, REPORT_EVERY, self._report),
        ):
            self._loop(life, first, every, step)

    def kill(self) -> None:
        self._life += 1
        self._world.after(self._world.rng.uniform(0.5, 40.0), self.start)

    def freeze(self, seconds: float) -> None:
        """SIGSTOP: it does nothing, and does not notice the time."""
        self._frozen_until = self._world.time + seconds

    def _loop(self, life: int, first: float, every: float, step: Callable[[], None]) -> None:
        def turn() -> None:
            if self._life != life:
                return
            if self._world.time < self._frozen_until:
                self._world.after(self._frozen_until - self._world.time, turn)
                return
            step()
            self._world.after(every, turn)

        self._world.after(first, turn)

    def _heartbeat(self) -> None:
        try:
            if not self._registered:
                self._register()
            held = self.holding.held()
            known, lost = self._network.call(lambda rooms: _heartbeat(rooms, self.name, held))
        except Lost:
            return
        self._registered = known
        self.holding.lose([item for item in held if item.block in lost])

    def _register(self) -> None:
        held = self.holding.held()
        registration = Registration(self.name, self.name)
        self._network.call(lambda rooms: _register(rooms, registration, held))
        self._registered = True

    def _lease(self) -> None:
        if not self._registered or self.holding.blocks >= 3:
            return
        try:
            blocks = self._network.call(lambda rooms: self._witness.lease(rooms, self.name, 2))
        except Lost:
            return
        for leased in blocks:
            self.holding.add(leased, _works.decode(leased.body))
        while (batch := self.holding.next_works(1000)) is not None:
            block, works = batch
            for work in works:
                self._download(block, work)

    def _download(self, block: HeldBlock, work: Work) -> None:
        life = self._life
        failed = self._world.chance(self._failing)

        def ended() -> None:
            if self._life != life:
                return
            host = host_in(work.uri)
            if failed and not is_own(host) and self._world.chance(TROUBLE):
                self._put_off(block, host, work.id)
                return
            self.fetched[work.id] = self.fetched.get(work.id, 0) + 1
            failure = "network" if failed else ""
            outcome = Outcome(work.id, failure, 0 if failed else 200)
            block.done(Fetched(outcome, b"frame", host))

        self._world.after(self._world.rng.expovariate(1 / MEAN_DOWNLOAD), ended)

    def _put_off(self, block: HeldBlock, host: str, request: int) -> None:
        """Defer a request, as if its host had started to refuse while it waited."""
        self.deferred += 1
        block.running -= 1
        self.holding.active -= 1
        if not block.gone:
            block.gated += 1
            block.open_at[host] = block.open_at.get(host, 0) + 1
            block.trouble_at(host, "failing", self._world.rng.uniform(1.0, 20.0))
            block.defer(host, request)

    def _report(self) -> None:
        self._unsent += self.holding.take_due(self._world.time, REPORT_EVERY)
        if not self._unsent:
            return
        reports = list(self._unsent)
        try:
            verdicts = self._network.call(
                lambda rooms: self._witness.take(rooms, self.name, reports)
            )
        except Lost:
            return
        del self._unsent[: len(reports)]
        for report, verdict in zip(reports, verdicts, strict=True):
            self.verdicts[verdict.verdict] = self.verdicts.get(verdict.verdict, 0) + 1
            self.holding.settle(report, verdict.verdict)


async def _heartbeat(rooms: CenterParts, agent: str, held: list[Held]) -> tuple[bool, list[int]]:
    if not await rooms.roster.heartbeat(agent, Vitals(), 0.0):
        return False, []
    return True, await rooms.leases.renew(agent, held)


async def _register(rooms: CenterParts, registration: Registration, held: list[Held]) -> None:
    await rooms.roster.register(registration)
    await rooms.leases.abandon(registration.id, held)
