"""The blocks that an agent holds: what to start next, outcomes, what to report.

Synchronous bookkeeping without I/O, for the agent's loop and for simulations. A block has at most
one report under way, so that its reports arrive in the order in which they were created. It must
never lose a block silently: each leaves by a result of the center, a give-back, the outbox or a
loss that is counted.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence

from skep.agent.hosts.host_notes import HostNotes
from skep.agent.hosts.rate_limited_requests import RateLimitedHost, RateLimitedRequests, host_in
from skep.downloaders.ports import Fetched
from skep.model.block import BlockReport, Held, Leased
from skep.model.failures.failure_class import FailureClass
from skep.model.hosts.host import SiteNote
from skep.model.request import Outcome, Work

#: Maximum bytes of frames in one report; a larger block is reported in parts.
REPORT_BYTES = 8 * 2**20
#: Maximum blocks in one report.
REPORT_BLOCKS = 64

#: Results after which the agent continues as if its report had been new.
SETTLED = frozenset({"stored", "duplicate"})


class HeldBlock:
    """One lease. The downloader calls `done` for every request of the block."""

    __slots__ = (
        "frame_bytes", "frames", "gap", "gated", "gone", "held", "holding", "notes", "open_at",
        "outcomes", "reporting", "run", "running", "since", "sites", "spoiled", "urgent",
        "waiting", "withdrawn",
    )  # fmt: skip

    def __init__(self, holding: HeldBlocks, leased: Leased, works: Iterable[Work]) -> None:
        skip = frozenset(leased.skip)
        self.holding = holding
        self.held = leased.held
        self.run = leased.run
        #: Not started yet, in reverse order, so that the first can be popped.
        self.waiting = [work for work in works if work.id not in skip][::-1]
        self.running = 0
        #: Requests that wait for a host; rate-limited hosts, and their open requests.
        self.gated = 0
        self.sites: dict[str, RateLimitedHost[Gated]] = {}
        self.open_at: dict[str, int] = {}
        self.notes = HostNotes()
        #: A note is urgent: a host is free again, or has a problem.
        self.urgent = False
        self.outcomes: list[Outcome] = []
        self.frames: list[bytes] = []
        self.frame_bytes = 0
        #: When the oldest unreported outcome arrived.
        self.since = holding.monotonic()
        self.reporting = False
        #: No longer held: further outcomes are dropped.
        self.gone = False
        #: To be given back as soon as its outcomes are reported.
        self.withdrawn = False
        #: An earlier part was dropped, so no later part may be final.
        self.gap = False
        #: A downloader died during it, perhaps because of it.
        self.spoiled = False

    def done(self, fetched: Fetched) -> None:
        """Add an outcome. Called by downloaders, once per request: keep it short."""
        holding = self.holding
        self.running -= 1
        holding.active -= 1
        holding.finished += 1
        if self.gone:
            holding.discarded += 1
        elif fetched.outcome.failure != FailureClass.LOST:
            self._keep(fetched.outcome, fetched.frames)
            if fetched.host:
                self.notes.count(fetched.host, fetched.outcome)
        elif not self.withdrawn:
            self._spoil()
        if not self.running and not self.waiting and not self.gated:
            self.withdrawn = self.withdrawn or self.gap
            holding.ready = True
        holding.changed()

    def _spoil(self) -> None:
        """A downloader that died has not done the request, and a request that kills downloaders
        must not circulate without end: the block is not given back, its lease expires, and the
        center counts that."""
        self.gap = self.spoiled = True
        self.holding.broken.add(self.run)

    def _keep(self, outcome: Outcome, frames: bytes) -> None:
        if not self.outcomes:
            self.since = self.holding.monotonic()
        size = len(frames)
        outcome.offset, outcome.length = (self.frame_bytes, size) if size else (0, 0)
        if size:
            self.frames.append(frames)
            self.frame_bytes += size
            self.holding.unreported += size
            if self.frame_bytes >= REPORT_BYTES:
                self.holding.ready = True
        self.outcomes.append(outcome)

    def admit(self) -> None:
        """One of its requests leaves the host queue, to be started."""
        self.gated -= 1
        self.running += 1
        self.holding.active += 1

    def defer(self, host: str, request: int) -> None:
        """One of its requests leaves the host queue and the block: its host is paused."""
        self.gated -= 1
        self.notes.of(host).deferred.append(request)
        self.ended_at(host)
        if self.complete:
            self.holding.ready = True

    def trouble_at(self, host: str, trouble: str, cool: float | None) -> None:
        """A host must be paused; the center should be informed soon."""
        note = self.notes.of(host)
        note.trouble, note.cool = trouble, cool
        self.urgent = self.holding.ready = True

    def ended_at(self, host: str) -> None:
        """A request of a rate-limited host has ended; the last one releases the host."""
        self.open_at[host] -= 1
        if not self.open_at[host]:
            self.notes.of(host)
            self.urgent = self.holding.ready = True

    @property
    def complete(self) -> bool:
        """Every request has its outcome."""
        return not self.waiting and not self.running and not self.gated

    def due(self, now: float, every: float) -> bool:
        """Whether to report now: the block ended, is large, or an outcome is due."""
        if self.reporting:
            return False
        if self.withdrawn and self.complete:
            return bool(self.outcomes or self.urgent)
        if self.complete or self.urgent or self.frame_bytes >= REPORT_BYTES:
            return True
        return bool(self.outcomes) and now - self.since >= every

    def take(self) -> BlockReport:
        """All unreported outcomes, as one report."""
        final = self.complete and not self.withdrawn and not self.gap
        frames = b"".join(self.frames)
        report = BlockReport(
            self.held.block, self.held.token, self.outcomes, final, frames, self._take_notes()
        )
        self.outcomes, self.frames, self.frame_bytes = [], [], 0
        self.reporting, self.urgent = True, False
        return report

    def _take_notes(self) -> list[SiteNote]:
        notes = self.notes.take()
        if self.sites:
            now = self.holding.monotonic()
            for note in notes:
                if site := self.sites.get(note.host):
                    note.delay, note.crawl_delay = site.delay, site.crawl_delay
                    note.left, note.wait = not self.open_at[note.host], site.wait(now)
        return notes


#: An item of the host queue.
Gated = tuple[HeldBlock, Work]


class HeldBlocks:
    """All blocks of one agent. `changed` is called after every outcome."""

    def __init__(
        self, monotonic: Callable[[], float], gate: RateLimitedRequests[Gated] | None = None
    ) -> None:
        self.monotonic = monotonic
        self.gate: RateLimitedRequests[Gated] = gate or RateLimitedRequests()
        self.changed: Callable[[], None] = _nothing
        self._blocks: dict[int, HeldBlock] = {}
        self._startable: deque[HeldBlock] = deque()
        #: Running downloads.
        self.active = 0
        #: Downloads that have ended since the start.
        self.finished = 0
        #: Bytes of frames that no center has yet.
        self.unreported = 0
        #: A report may be due at once; the reporter clears it.
        self.ready = False
        #: Outcomes dropped because their block was no longer held.
        self.discarded = 0
        #: Blocks that the center took back, or whose reports came too late.
        self.lost = 0
        #: Runs whose downloader died; opening a new one clears it.
        self.broken: set[str] = set()
        #: Draining: every block that still arrives is given back.
        self.closing = False

    def add(
        self,
        leased: Leased,
        works: Sequence[Work],
        paced: Mapping[str, RateLimitedHost[Gated]] | None = None,
        *,
        keep: bool = True,
    ) -> HeldBlock:
        """Add a lease; an older lease of the same block is lost. `keep=False` gives it back.

        Requests of hosts in `paced` wait in the host queue, all others are started in order.
        """
        if leased.id in self._blocks:
            self.lose([self._blocks[leased.id].held])
        block = HeldBlock(self, leased, works)
        self._blocks[leased.id] = block
        if self.closing or not keep:
            self._withdraw(block)
            return block
        if paced:
            self._queue_at_host(block, paced)
        if block.waiting:
            self._startable.append(block)
        elif not block.gated:
            self.ready = True
        return block

    def _queue_at_host(self, block: HeldBlock, paced: Mapping[str, RateLimitedHost[Gated]]) -> None:
        free = []
        for work in block.waiting[::-1]:
            site = paced.get(host_in(work.uri))
            if site is None:
                free.append(work)
                continue
            block.sites[site.host] = site
            block.open_at[site.host] = block.open_at.get(site.host, 0) + 1
            block.gated += 1
            self.gate.offer(site, (block, work))
        block.waiting = free[::-1]

    def next_works(self, limit: int) -> tuple[HeldBlock, list[Work]] | None:
        """Up to `limit` requests of the oldest block that has some; they count as active."""
        while self._startable and not self._startable[0].waiting:
            self._startable.popleft()
        if not self._startable or limit <= 0:
            return None
        block = self._startable[0]
        works = block.waiting[-limit:][::-1]
        del block.waiting[-limit:]
        block.running += len(works)
        self.active += len(works)
        return block, works

    @property
    def queued(self) -> int:
        """Requests that wait to be started; in the host queue those that can start soon."""
        return sum(len(block.waiting) for block in self._startable) + self.gate.ripe

    @property
    def blocks(self) -> int:
        """Number of held blocks."""
        return len(self._blocks)

    def has(self, run: str) -> bool:
        """Whether a block of the run is held."""
        return any(block.run == run for block in self._blocks.values())

    def held(self) -> list[Held]:
        """Every lease to be renewed."""
        return [block.held for block in self._blocks.values()]

    def take_due(self, now: float, every: float) -> list[BlockReport]:
        """Reports to send together, oldest block first; at most about `REPORT_BYTES`."""
        reports: list[BlockReport] = []
        size = 0
        for block in self._blocks.values():
            if not block.due(now, every):
                continue
            if reports and (size + block.frame_bytes > REPORT_BYTES):
                self.ready = True
                break
            size += block.frame_bytes
            reports.append(block.take())
            if len(reports) == REPORT_BLOCKS:
                self.ready = True
                break
        return reports

    def next_due(self, every: float) -> float | None:
        """When the oldest waiting outcome is due; None when none waits."""
        times = [b.since for b in self._blocks.values() if b.outcomes and not b.reporting]
        return min(times) + every if times else None

    def settle(self, report: BlockReport, verdict: str) -> None:
        """A center has answered this report."""
        block = self._reported(report)
        if block is None:
            return
        if verdict not in SETTLED:
            self.lose([block.held])
        elif report.final:
            del self._blocks[report.block]
        elif block.complete and block.gap:
            self._withdraw(block)

    def spilled(self, report: BlockReport) -> None:
        """The report is in the outbox, which is responsible for it from now on."""
        self.settle(report, "stored")

    def mark_gaps(self, dropped: Iterable[Held]) -> None:
        """Parts of these blocks were dropped: another agent must finish them."""
        for held in dropped:
            block = self._blocks.get(held.block)
            if block is not None and block.held == held:
                block.gap = True

    def _reported(self, report: BlockReport) -> HeldBlock | None:
        self.unreported -= len(report.frames)
        block = self._blocks.get(report.block)
        if block is None or block.held.token != report.token:
            return None
        block.reporting = False
        self.ready = True
        return block

    def lose(self, held: Iterable[Held]) -> int:
        """The center says that these leases are over; returns how many were held.

        A block whose last report is under way is left to the answer to it.
        """
        gone = [block for one in held if (block := self._ours(one)) is not None]
        for block in gone:
            del self._blocks[block.held.block]
            self._forget(block)
        self.lost += len(gone)
        return len(gone)

    def _ours(self, held: Held) -> HeldBlock | None:
        block = self._blocks.get(held.block)
        if block is None or block.held != held:
            return None
        ends = block.reporting and block.complete and not block.outcomes
        return None if ends else block

    def _forget(self, block: HeldBlock) -> None:
        block.gone = True
        self.discarded += len(block.outcomes)
        self.unreported -= block.frame_bytes
        block.waiting, block.outcomes, block.frames, block.frame_bytes = [], [], [], 0
        self._leave_host_queue(block)

    def withdraw(self, run: str | None = None) -> int:
        """Start no more of these blocks and give them back; None means all of them."""
        blocks = [
            block
            for block in self._blocks.values()
            if run in {None, block.run} and not block.withdrawn and not block.complete
        ]
        for block in blocks:
            self._withdraw(block)
        return len(blocks)

    def _withdraw(self, block: HeldBlock) -> None:
        block.withdrawn = True
        block.waiting = []
        self._leave_host_queue(block)
        self.ready = True

    def _leave_host_queue(self, block: HeldBlock) -> None:
        if block.gated:
            block.gated = 0
            self.gate.drop(lambda item: item[0] is block)

    def abandon_running(self) -> None:
        """Stop waiting for downloads that did not react to an abort."""
        for block in self._blocks.values():
            self.active -= block.running
            block.running = 0
        self.ready = True

    def take_returns(self) -> list[Held]:
        """Withdrawn blocks with nothing left to report; they are no longer held."""
        ended = [
            block
            for block in self._blocks.values()
            if block.withdrawn and block.complete and not block.due(0.0, 0.0)
            if not block.reporting
        ]
        for block in ended:
            del self._blocks[block.held.block]
            self.lost += block.spoiled
        return [block.held for block in ended if not block.spoiled]


def _nothing() -> None:
    """No listener."""
