"""Delivers the items of job runs into sinks until each sink has them. Run by every center.

A delivery outlives its run: if a sink is unavailable, this center or another one retries until
the sink has all items or a user gives the delivery up. A center delivers only what it has leased.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import NamedTuple

from skep.errors import LostLease, SkepError
from skep.jobs.runs.delivery_writer import ALERT, DeliveryWriter
from skep.jobs.runs.old_position_files import move_position_files
from skep.model.delivery import Delivery, DeliveryState, sink_key
from skep.model.jobs.job import JobRun, SinkPart
from skep.model.states import ENDED_RUN_STATES
from skep.runtime.backoff import Backoff
from skep.runtime.clock import Clock
from skep.runtime.signals import WakeUp
from skep.settings import JobsSettings
from skep.store.ports import Store
from skep.streams.host_rules import JobLimits
from skep.streams.registry import open_sink, secrets_hidden

log = logging.getLogger(__name__)

#: Seconds until the delivery of a resting run is checked again, unless the run continues.
REST = 30.0
#: Seconds between two checks while the end of a run waits for its sinks.
LOOK_EVERY = 0.1


class Task(NamedTuple):
    """A delivery that this center works on."""

    lease: int
    writer: DeliveryWriter | None
    task: asyncio.Task[None]


class Deliverer:
    """One center's deliveries."""

    def __init__(
        self,
        center: str,
        settings: JobsSettings,
        store: Store,
        data: Path,
        limits: JobLimits | None,
        clock: Clock,
        rng: Random,
    ) -> None:
        self._center = center
        self._settings = settings
        self._store = store
        self._files = data / "outputs"
        self._outputs = Path(settings.outputs).absolute() if settings.outputs else data / "items"
        self._limits = limits
        self._clock = clock
        self._rng = rng
        self._again = Backoff(first=settings.deliver_first, cap=settings.deliver_cap)
        self._tasks: dict[tuple[str, str], Task] = {}
        self._moved_files = False
        #: Notified when there may be something to deliver.
        self.wake_up = WakeUp(clock)

    # -- calls of the run supervisor

    async def open(self, held: JobRun, sinks: Sequence[SinkPart]) -> None:
        """Start or continue to deliver the items of a run. Raises ConfigurationError for a sink
        that cannot be opened on this center."""
        if not sinks:
            return
        self._outputs.mkdir(parents=True, exist_ok=True)
        for part in sinks:
            await self._close_unused(part, held)
        new = [_new(held, part) for part in sinks]
        await self._store.deliveries.open(new, self._clock.now())
        self.wake_up.notify()

    async def _close_unused(self, part: SinkPart, held: JobRun) -> None:
        sink = open_sink(
            part.url,
            part.options,
            name=held.run,
            clock=self._clock,
            folder=self._outputs,
            limits=self._limits,
        )
        await sink.close()

    async def settle(self, held: JobRun) -> str:
        """Wait after the end of a run until its sinks have all items. Returns what is left to
        deliver, in words; "" when the sinks have everything."""
        self.look(held.run)
        deadline, before = 0.0, None
        while pending := await self._pending(held.run):
            positions = [(one.sink, one.position) for one, _ in pending]
            now = self._clock.monotonic()
            if positions != before:
                deadline, before = now + self._settings.deliver_wait, positions
            if now >= deadline:
                told = "; ".join(_in_words(one, count) for one, count in pending if count)
                if not told:
                    return ""
                await self._alert(held.run, held.job, f"{told}; delivery continues")
                return told
            await self._clock.sleep(LOOK_EVERY)
        return ""

    async def _pending(self, run: str) -> list[tuple[Delivery, int]]:
        views = await self._store.deliveries.of(run)
        open_ = DeliveryState.OPEN
        return [(view.delivery, view.pending) for view in views if view.delivery.state is open_]

    def look(self, run: str) -> None:
        """A run has ended, or a user changed its deliveries."""
        for (name, _), task in self._tasks.items():
            if name == run and task.writer is not None:
                task.writer.look()
        self.wake_up.notify()

    # -- the loop

    async def step(self) -> None:
        """Claim what is due, start new deliveries, cancel those whose lease was lost."""
        if not self._moved_files:
            await move_position_files(self._store, self._files, self._clock.now())
            self._moved_files = True
        now = self._clock.now()
        settings = self._settings
        until = now + settings.lease_seconds
        limit = settings.deliveries_limit if settings.runs_limit else 0
        claimed = await self._store.deliveries.claim(self._center, now, until, limit)
        mine = {(one.run, one.sink): one for one in claimed}
        for key, task in self._tasks.items():
            lost = key not in mine or mine[key].lease != task.lease
            # Only once: a second time would interrupt the closing of the sink.
            if lost and not task.task.cancelling():
                task.task.cancel()
        for key, held in mine.items():
            if key not in self._tasks:
                await self._begin(key, held)

    async def _begin(self, key: tuple[str, str], held: Delivery) -> None:
        part = await self._part_of(held)
        writer = None if part is None else self._writer(held, part)
        task = asyncio.create_task(self._work(key, held, writer))
        self._tasks[key] = Task(held.lease, writer, task)

    def _writer(self, held: Delivery, part: SinkPart) -> DeliveryWriter:
        place = self._outputs, self._limits
        return DeliveryWriter(held, part, self._store, *place, self._clock, self._rng)

    async def stop(self) -> None:
        """Finish the active batches, then release the deliveries to other centers."""
        tasks = list(self._tasks.values())
        for task in tasks:
            if task.writer is not None:
                task.writer.stop()
        await asyncio.gather(*(task.task for task in tasks), return_exceptions=True)
        with suppress(SkepError):  # else the leases expire
            await self._store.deliveries.release(self._center)

    # -- one delivery

    async def _work(
        self, key: tuple[str, str], held: Delivery, writer: DeliveryWriter | None
    ) -> None:
        try:
            if writer is None:
                await self._failed(held, "its job no longer has this sink")
            else:
                await self._write(held, writer)
        except LostLease as error:
            log.info("%s", error.detail)
        except SkepError as error:
            await self._failed(held, error.detail)
        except Exception as error:
            log.exception("unexpected error in the delivery of run %s", held.run)
            await self._failed(held, f"unexpected error: {type(error).__name__}")
        finally:
            del self._tasks[key]

    async def _write(self, held: Delivery, writer: DeliveryWriter) -> None:
        deliveries, now = self._store.deliveries, self._clock.now
        state = await writer.run()
        if state is None or state in ENDED_RUN_STATES:
            if not await deliveries.done(held.proof, now()):
                await deliveries.rest(held.proof, 0.0)
                self.wake_up.notify()
        else:
            await deliveries.rest(held.proof, 0.0 if writer.stopped else now() + REST)

    async def _failed(self, held: Delivery, reason: str) -> None:
        """Store the failure with the delivery; delays between tries grow."""
        delay = self._again.delay(held.tries + 1, self._rng)
        now = self._clock.now()
        if not held.tries:
            log.warning("run %s: delivery failed and is retried: %s", held.run, reason)
        with suppress(SkepError):  # the store is unavailable, or another center has the delivery
            await self._store.deliveries.failed(held.proof, reason, now + delay, now)
            await self._alert(held.run, held.job, f"{held.place}: {reason}; delivery is retried")

    async def _alert(self, run: str, job: str, detail: str) -> None:
        told = f"run {run}: {detail}; see `skep data deliveries {run}`"[:2000]
        await self._store.alerts.raise_(ALERT, job, told, self._clock.now())

    async def _part_of(self, held: Delivery) -> SinkPart | None:
        row = await self._store.job_runs.get(held.run)
        if row is None:
            return None
        job = (await self._store.jobs.revision(row.job, row.revision)).job
        return next((part for part in job.sinks if sink_key(part) == held.sink), None)


def _new(held: JobRun, part: SinkPart) -> Delivery:
    """Leased by the center that supervises the run, so that files stay on one center."""
    place, lease = secrets_hidden(part.url), 1
    return Delivery(
        held.run,
        sink_key(part),
        held.job,
        place,
        holder=held.holder,
        held_until=held.held_until,
        lease=lease,
    )


def _in_words(one: Delivery, count: int) -> str:
    items = "1 item" if count == 1 else f"{count} items"
    error = f" ({one.error})" if one.error else ""
    return f"{items} not delivered yet to {one.place}{error}"
