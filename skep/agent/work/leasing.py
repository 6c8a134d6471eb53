"""Leases blocks from a center before the last ones are used up.

Runs on the agent's event loop, one call at a time. Without work the call waits at the center;
without a center the agent waits, a little longer each time.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from math import inf
from random import Random

import msgspec

from skep.agent.agent_folder import AgentFolder
from skep.agent.hosts.rate_limited_requests import RateLimitedHost
from skep.agent.slow_calls import noticed_when_slow
from skep.agent.work.held_blocks import Gated, HeldBlocks
from skep.agent.work.prefetch import UNREPORTED_LIMIT, DownloadRate, blocks_wanted, requests_wanted
from skep.errors import SkepError
from skep.model.block import Leased
from skep.model.request import Work
from skep.model.run import RunSettings
from skep.runtime.backoff import Backoff
from skep.runtime.clock import Clock
from skep.runtime.retry import Pauses
from skep.runtime.signals import WakeUp
from skep.settings import AgentSettings
from skep.wire.client import CenterClient
from skep.wire.messages import LEASE_WAIT_MAX, LeaseAsk, LeaseReply

log = logging.getLogger(__name__)

RETRY = Backoff(first=0.5, cap=10.0)
#: Pause after an empty answer that arrived without a wait.
EMPTY_PAUSE = 0.5
#: Maximum requests in the host queue before leasing stops, however slow their hosts are.
GATED_LIMIT = 20_000
#: Minimum requests that a block of slow hosts counts as, or too many would be leased.
SMALLEST_BLOCK = 10
#: Seconds after the wait of a lease call when no answer can be on its way any more.
REFUSED_MARGIN = 60.0
#: Seconds after the last work during which an unanswered lease call is checked.
BUSY = 5.0

_works = msgspec.msgpack.Decoder(list[Work])


class Leaser:
    """Call `consider` after starts, and `wake` when a center may have work."""

    def __init__(
        self,
        agent: str,
        kinds: tuple[str, ...],
        client: CenterClient,
        holding: HeldBlocks,
        workspace: AgentFolder,
        settings: AgentSettings,
        arrived: Callable[[], None],
        alive_since: Callable[[float], bool],
        clock: Clock,
        rng: Random,
    ) -> None:
        self._agent = agent
        self._kinds = kinds
        self._client = client
        self._holding = holding
        self._workspace = workspace
        self._settings = settings
        self._arrived = arrived
        self._alive_since = alive_since
        self._clock = clock
        self._rng = rng
        self._hunger = WakeUp(clock)
        self._wake = WakeUp(clock)
        self._sated = False
        #: Called when a center is slow; a heartbeat then checks whether it is still there.
        self.slow: Callable[[], None] = _nothing
        #: When the last blocks arrived.
        self._got = -inf
        #: A call is under way: blocks may be on their way.
        self.asking = False
        self.pace = DownloadRate(clock.monotonic())
        #: Runs whose unstarted work was given back, and when; None = all runs.
        self._refused: dict[str | None, float] = {}

    def want(self) -> int:
        """Number of blocks to lease now."""
        holding, settings = self._holding, self._settings
        if holding.closing or holding.unreported >= UNREPORTED_LIMIT:
            return 0
        if holding.gate.waiting >= GATED_LIMIT:
            return 0
        self.pace.note_finished(holding.finished, self._clock.monotonic())
        size = self.pace.block_size
        target = requests_wanted(
            holding.active, settings.concurrency, settings.ahead * size, self.pace.rate
        )
        return blocks_wanted(holding.queued, target, size)

    def consider(self) -> None:
        """Called after every round of starts: cheap when there is enough."""
        if self._sated and self.want():
            self._hunger.notify()

    def wake(self) -> None:
        """A center has work, or is back: end the pause."""
        self._wake.notify()

    def refuse(self, run: str | None) -> None:
        """A run was paused or released, or the agent drains (None): a block that was leased before
        the center knew may be on its way. Answers to calls from before this time are given
        back."""
        now = self._clock.monotonic()
        oldest = now - LEASE_WAIT_MAX - REFUSED_MARGIN
        self._refused = {name: at for name, at in self._refused.items() if at > oldest}
        self._refused[run] = now

    async def run(self) -> None:
        """Until the agent drains."""
        pauses = Pauses(RETRY, self._rng)
        while not self._holding.closing:
            want = self.want()
            if not want:
                await self._rest()
                continue
            try:
                await self._ask(want)
                pauses.succeeded()
            except SkepError as error:
                self.asking = False
                log.debug("lease: %s", error.detail)
                await self._wake.wait(pauses.failed())

    async def _rest(self) -> None:
        self._sated = True
        await self._hunger.wait()
        self._sated = False

    async def _ask(self, want: int) -> None:
        wait = self._settings.lease_wait
        began = self._clock.monotonic()
        self.asking = True
        busy = began - self._got < BUSY
        with noticed_when_slow(self.slow if busy else _nothing):
            reply = await self._client.lease(LeaseAsk(self._agent, want, wait, self._kinds))
        await self.take(reply, began)
        self.asking = False
        waited = self._clock.monotonic() - began
        if not reply.blocks and waited < min(EMPTY_PAUSE, wait or EMPTY_PAUSE):
            await self._wake.wait(EMPTY_PAUSE)

    async def take(self, reply: LeaseReply, asked: float) -> None:
        """Add the blocks of an answer to a call that was sent then."""
        await self._remember(reply.runs)
        now = self._clock.monotonic()
        if reply.sites and not self._alive_since(asked):
            # Another agent may have these hosts by now.
            log.info("%d blocks arrived too late to be started", len(reply.blocks))
            self._give_back(reply.blocks)
            return
        paced = {pace.host: self._holding.gate.learn(pace, now) for pace in reply.sites}
        for leased in reply.blocks:
            if asked <= max(self._refused.get(name, -inf) for name in (leased.run, None)):
                self._holding.add(leased, [], keep=False)
            else:
                self._add(leased, paced)
        if reply.blocks:
            self._got = now
            self._arrived()

    def _give_back(self, blocks: list[Leased]) -> None:
        for leased in blocks:
            self._holding.add(leased, [], keep=False)
        self._arrived()

    async def _remember(self, runs: dict[str, RunSettings]) -> None:
        for run, settings in runs.items():
            if not self._workspace.knows(run, settings):
                await asyncio.to_thread(self._workspace.allocate, run, settings)

    def _add(self, leased: Leased, paced: Mapping[str, RateLimitedHost[Gated]]) -> None:
        try:
            works = _works.decode(leased.body)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            # Not given back: its lease expires, and after a few of those it fails.
            log.error("cannot read block %d: %s", leased.id, error)  # noqa: TRY400  (the cause is in the line)
            return
        known = self._workspace.settings_of(leased.run) is not None
        if not known:
            log.error("block %d: the settings of run %s are missing", leased.id, leased.run)
        before = self._holding.queued
        self._holding.add(leased, works, paced, keep=known)
        # Of requests in the host queue only those count that can be started soon.
        size = self._holding.queued - before
        self.pace.note_block(max(size, SMALLEST_BLOCK) if paced else len(works))


def _nothing() -> None:
    """No listener."""
