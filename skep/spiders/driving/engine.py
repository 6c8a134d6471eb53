"""The loop of a spider: start, read, parse, send a checkpoint, until nothing is left.

It drives one spider over one run's queue, in the spider's process. While pages are parsed, the
next read and the last checkpoint are under way. It holds a bounded number of pages, and no
result is half stored: what was not in a checkpoint is read again by the next driver.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress

import msgspec

from skep.errors import CenterUnreachable, SkepError, StaleToken, Unavailable
from skep.model.states import RunState
from skep.runtime.clock import Clock
from skep.runtime.signals import within
from skep.spiders.authoring.callbacks import Caller, TooSlow
from skep.spiders.authoring.spider import Spider
from skep.spiders.driving import stats as ends
from skep.spiders.driving.answer_bounds import Outstanding, SilenceBound
from skep.spiders.driving.checkpoints import Checkpoints
from skep.spiders.driving.harvest import Harvest, Harvester
from skep.spiders.driving.page_parsing import FAIL, Parser, Stop, memory_stop
from skep.spiders.driving.start_requests import StartRequests
from skep.spiders.driving.stats import Ending, Stats
from skep.spiders.ports import PageBlock, Reading, RunQueue, Turn

#: Seconds that a read may wait at the center.
READ_WAIT = 5.0
#: Archived bytes of one read, approximately; unpacked they are about four times as many.
READ_BYTES = 16 * 2**20
#: Pages parsed before other tasks run.
PAGES_AT_ONCE = 16
#: Start requests in one checkpoint.
START_PART = 1000
#: Checkpoints of start requests before the next read.
START_PARTS = 10
#: Seconds between two reads when a read comes back empty at once.
EMPTY_PAUSE = 0.2
#: Seconds between two signs of life of a driver that has nothing to send.
HEARTBEAT_EVERY = 15.0
#: Added to what callbacks may take, before a silent driver counts as dead.
SILENT_MARGIN = 120.0
#: Empty readings in a row, begun when everything was stored, that end a run.
QUIET_READINGS = 2


class _Ask(msgspec.Struct, frozen=True):
    """What was known when a read began."""

    at: float = 0.0
    begun: int = 0
    added: int = 0
    #: Everything was stored: an empty answer means that nothing is left.
    conclusive: bool = False


class SpiderEngine:
    """Made for one run of one spider; `run` it once."""

    def __init__(self, spider: Spider, queue: RunQueue, clock: Clock) -> None:
        self.spider = spider
        #: For progress bars; it changes while the engine runs.
        self.stats = Stats()
        self._options = spider.options
        self._queue = queue
        self._clock = clock
        self._caller = Caller(spider.options.callback_seconds)
        self._harvester = Harvester(spider, self.stats, f"{clock.now():.6f}")
        self._parser = Parser(spider, self._caller, self._harvester, self.stats)
        self._turns = Checkpoints(queue, self.stats)
        self._starts = StartRequests(spider, self._caller, clock)
        self._reading: asyncio.Task[Reading] | None = None
        self._ask = _Ask()
        self._added_at_read = 0
        self._state: str = RunState.RUNNING
        self._open = 0
        self._items = 0
        self._limit = 1
        self._quiet = 0
        self._began = 0.0
        self._outstanding = Outstanding(spider.options.outstanding_limit)
        self._silence = SilenceBound(spider.options.silence_seconds)
        self._pausing = False
        self._wake = asyncio.Event()

    def pause(self) -> None:
        """End after the block in hand; any process can continue the run later."""
        self._pausing = True
        self._wake.set()

    async def run(self) -> Ending:
        """Drive the spider to an end. What the spider's code raises becomes a reason."""
        self._began = self._clock.monotonic()
        self._silence.begin(self._began)
        beating = asyncio.create_task(self._heartbeat())
        with self._caller:
            stop = await self._driven()
            beating.cancel()
            stop = await self._closed(stop)
        self.stats.seconds = self._clock.monotonic() - self._began
        return Ending(stop.reason, stop.sentence, self.stats)

    async def _driven(self) -> Stop:
        try:
            await self._begin()
            while True:
                await self._round()
        except Stop as stop:
            return stop
        except MemoryError as error:
            return memory_stop(error, "the spider")
        except StaleToken as error:
            return Stop(ends.TAKEN_OVER, f"another process drives this run now: {error.detail}")
        except (CenterUnreachable, Unavailable) as error:
            return Stop(ends.UNREACHABLE, f"no center answered in time: {error.detail}")
        except SkepError as error:
            return await self._refused(error)

    async def _refused(self, error: SkepError) -> Stop:
        """The reason behind a refusal: nearly always the run was ended meanwhile."""
        try:
            self._hear(await self._queue.read(1, 0.0, ()))
        except Stop as stop:
            return stop
        except SkepError:
            pass
        return Stop(ends.REFUSED, f"the center refused ({error.code}): {error.detail}")

    async def _heartbeat(self) -> None:
        """An empty checkpoint now and then: a run whose driver is silent for too long fails."""
        while True:
            await self._clock.sleep(HEARTBEAT_EVERY)
            # The next read or checkpoint raises the same error.
            with suppress(SkepError):
                await self._queue.checkpoint(Turn(0))

    @property
    def longest_silence(self) -> float:
        """Seconds for which the spider's code may block the event loop; 0 = no limit."""
        seconds = self._options.callback_seconds
        return SILENT_MARGIN + PAGES_AT_ONCE * seconds if seconds else 0.0

    async def _begin(self) -> None:
        settings = self.spider.run_settings
        run = await self._queue.open(self.spider.name, settings, self.longest_silence)
        self._harvester.chained = run.settings.placement.traits.chains
        if run.state is RunState.CANCELLED:
            raise Stop(ends.CANCELLED, f"run {run.id} was cancelled; start it under another name")
        if run.state is not RunState.RUNNING:
            await self._queue.move("continue")
        await self._hook("opened")

    async def _hook(self, name: str, *arguments: str) -> None:
        try:
            await self._caller.results(getattr(self.spider, name), *arguments)
        except TooSlow:
            raise Stop(ends.CALLBACK_TIME, f"{name}() took too long", FAIL) from None
        except Exception as error:
            self.spider.log.exception("%s() raised", name)
            raise Stop(ends.START_FAILED, f"{name}() raised {error!r}", FAIL) from error

    async def _round(self) -> None:
        """Start what there is room for, read, parse, send."""
        await self._feed()
        reading = await self._next_reading()
        if self._pausing:
            await self._pause_now()
        if reading is None:
            return
        self._hear(reading)
        if not reading.blocks:
            await self._nothing_came(reading)
            return
        self._quiet = 0
        self._fit(reading.blocks)
        self._read_on(reading.blocks)
        for block in reading.blocks:
            await self._block(block)
            if self._pausing:
                await self._pause_now()
        await self._turns.send()

    async def _pause_now(self) -> None:
        await self._turns.settle()
        raise Stop(ends.PAUSED, "paused; start it again under the same run to go on", "pause")

    async def _feed(self) -> None:
        """Send start requests while the run has room for them."""
        for _ in range(START_PARTS):
            room = self._room()
            may = self._state == RunState.RUNNING and not self._starts.exhausted
            if not may or room <= 0 or self._pausing:
                return
            await self._turns.settle()
            before = self._turns.added
            if not await self._taken(min(room, START_PART)):
                return
            await self._turns.settle()
            self._outstanding.sent(self._turns.added - before)

    async def _taken(self, limit: int) -> int:
        try:
            results = self._starts.take(limit)
            await self._turns.add(self._harvester.start(results))
        except TooSlow:
            raise Stop(ends.CALLBACK_TIME, "start() took too long for one request", FAIL) from None
        except MemoryError:
            raise
        except Exception as error:
            self.spider.log.exception("start() raised")
            sentence = f"start() raised {type(error).__name__}: {error}"
            raise Stop(ends.START_FAILED, sentence, FAIL) from error
        return len(results)

    async def _block(self, block: PageBlock) -> None:
        """Parse the pages of a block and gather the results."""
        self._outstanding.returned(block)
        for number, page in enumerate(block.pages):
            if number % PAGES_AT_ONCE == 0:
                await asyncio.sleep(0)
            harvest = await self._parser.parse(page)
            if harvest is not None:
                self._cut(harvest)
                await self._turns.add(harvest)
            if self._limit_met():
                break
        await self._turns.end_block(block.id)
        if reason := self._limit_met():
            await self._turns.settle()
            raise Stop(reason, f"the {reason} of the spider's settings is reached", "finish")

    def _cut(self, harvest: Harvest) -> None:
        """No more items than the limit allows."""
        if limit := self._options.item_limit:
            del harvest.items[max(0, limit - self._items) :]
        self._items += len(harvest.items)

    def _limit_met(self) -> str:
        if 0 < self._options.item_limit <= self._items:
            return ends.ITEM_LIMIT
        if 0 < self._options.page_limit <= self.stats.pages:
            return ends.PAGE_LIMIT
        return ""

    async def _nothing_came(self, reading: Reading) -> None:
        """End when it is sure that nothing is left; otherwise do not ask too often."""
        sure = self._ask.conclusive and self._ask.begun == self._turns.begun
        running = reading.state == RunState.RUNNING
        if reading.open or not (sure and running and self._starts.exhausted):
            self._quiet = 0
            await self._turns.settle()
            if self._clock.monotonic() - self._ask.at < EMPTY_PAUSE and sure:
                await within(self._wake, EMPTY_PAUSE)
            return
        self._quiet += 1
        if self._quiet >= QUIET_READINGS:
            raise Stop(ends.FINISHED, "every request has ended and was looked at", "finish")

    def _room(self) -> int:
        """How many starts may be sent: open are those of the last reading, and what was
        added since."""
        return self._outstanding.room(self._open + self._turns.added - self._added_at_read)

    async def _next_reading(self) -> Reading | None:
        """The reading that is under way; None when something else comes first."""
        if self._reading is None:
            self._read_on(())
        assert self._reading is not None  # noqa: S101 - made in the line above
        events = [self._wake]
        if not self._starts.exhausted and self._room() > 0:
            events.append(self._starts.news)
        waiters = [asyncio.create_task(event.wait()) for event in events]
        await asyncio.wait({self._reading, *waiters}, return_when=asyncio.FIRST_COMPLETED)
        for waiter in waiters:
            waiter.cancel()
        if not self._reading.done():
            return None
        reading, self._reading = self._reading, None
        return reading.result()

    def _read_on(self, coming: Sequence[PageBlock]) -> None:
        """Begin the next read; `coming` are the blocks that are about to be parsed."""
        self._ask = _Ask(
            at=self._clock.monotonic(),
            begun=self._turns.begun,
            added=self._turns.added,
            conclusive=self._turns.idle and not coming,
        )
        taken = [*self._turns.in_hand, *(block.id for block in coming)]
        wait = 0.0 if self._quiet else READ_WAIT
        self._reading = asyncio.create_task(self._queue.read(self._limit, wait, taken))

    def _fit(self, blocks: Sequence[PageBlock]) -> None:
        """Ask for as many blocks as fit into memory, by the size of the last ones."""
        size = sum(len(page.frames) for block in blocks for page in block.pages)
        fitting = READ_BYTES * len(blocks) // max(size, 1)
        self._limit = max(1, min(fitting, self._options.read_blocks))

    def _hear(self, reading: Reading) -> None:
        """What a reading says beside its blocks."""
        self._open = self.stats.open = reading.open
        self._added_at_read = self._ask.added
        self._note(reading.state)
        now = self._clock.monotonic()
        self.stats.seconds = now - self._began
        if reading.state == RunState.CANCELLED:
            raise Stop(ends.CANCELLED, "the run was cancelled")
        if reading.state == RunState.FINISHED:
            raise Stop(ends.FINISHED, "the run was ended")
        if reading.state == RunState.FAILED:
            raise Stop(ends.GIVEN_UP, f"the run has failed: {reading.reason}")
        if reading.asked == ends.RESTART:
            raise Stop(ends.RESTART, "a restart of this process was requested")
        self._silence.hear(reading, now)

    def _note(self, state: str) -> None:
        if state != self._state and RunState.PAUSED in {state, self._state}:
            paused = state == RunState.PAUSED
            self.spider.log.info(
                "the run was %s by message%s",
                "paused" if paused else "continued",
                "; waiting to be continued" if paused else "",
            )
        self._state = state

    async def _closed(self, stop: Stop) -> Stop:
        """Close everything; report the end to the center, then to the spider."""
        await self._checkpoints_saved(stop)
        if self._reading is not None:
            self._reading.cancel()
            await asyncio.gather(self._reading, return_exceptions=True)
        await self._starts.close()
        if stop.verb:
            try:
                await self._queue.end(stop.verb, f"{stop.reason}: {stop.sentence}")
            except SkepError as error:
                self.spider.log.warning("could not %s the run: %s", stop.verb, error.detail)
        try:
            await self._hook("closed", stop.reason)
        except Stop as late:
            self.spider.log.warning("%s", late.sentence)
        return stop

    async def _checkpoints_saved(self, stop: Stop) -> None:
        """Whole blocks are stored whatever ended the run, if the center still accepts them."""
        if stop.reason in {ends.TAKEN_OVER, ends.UNREACHABLE, ends.REFUSED, ends.GIVEN_UP}:
            await self._turns.drop()
            return
        try:
            await self._turns.settle_blocks()
        except (SkepError, MemoryError) as error:
            self.spider.log.warning("the last checkpoint was not stored: %s", error)
            await self._turns.drop()
