"""Writes the items of one run into one sink of its job. Run by the center that holds the lease.

Items are in the store before they come here, so nothing is lost when this ends: the next holder
continues from the stored position. After a take-over at most one batch is repeated, for sinks
that do not store their own position.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from random import Random

import msgspec

from skep.errors import InvalidInput
from skep.model.delivery import Delivery, RejectedItem
from skep.model.jobs.job import SinkPart
from skep.model.states import RunState
from skep.runtime.clock import Clock
from skep.store.ports import Store
from skep.store.ports.checkpoints import KeptItem
from skep.streams.host_rules import JobLimits
from skep.streams.ports import Record, Refused, Sink
from skep.streams.registry import ONCE, kind_of, open_sink
from skep.streams.sink_writer import SinkWriter

BATCH = 1000
#: Tries of one call before the sink counts as unavailable and the delivery waits.
TRIES = 3
ALERT = "job_sink"


class StorePositions:
    """The position of one sink in the store, under the lease of its delivery."""

    def __init__(self, store: Store, held: Delivery, clock: Clock, *, own: bool) -> None:
        """`own`: the sink stores its own position, which is used; this one is only displayed."""
        self._store, self._held, self._clock, self._own = store, held, clock, own
        self._told = 0
        self.written: Callable[[], int] = int

    async def load(self) -> int:
        return 0 if self._own else self._held.position

    async def save(self, position: int) -> None:
        written = self.written()
        added, self._told = written - self._told, written
        now = self._clock.now()
        await self._store.deliveries.save(self._held.proof, position, added, now)


class DeliveryWriter:
    """One delivery while this center holds it."""

    def __init__(
        self,
        held: Delivery,
        part: SinkPart,
        store: Store,
        outputs: Path,
        limits: JobLimits | None,
        clock: Clock,
        rng: Random,
    ) -> None:
        self.held = held
        self._part = part
        self._once = kind_of(part.url).promise == ONCE
        self._store = store
        self._outputs = outputs
        self._limits = limits
        self._clock = clock
        self._rng = rng
        self._state: RunState | None = RunState.RUNNING
        self._resend = True
        self._pump: SinkWriter | None = None
        self.stopped = False

    def stop(self) -> None:
        """Stop soon; the active batch is finished."""
        self.stopped = True
        if self._pump is not None:
            self._pump.stop()

    def look(self) -> None:
        """The run may have ended, or have new items."""
        if self._pump is not None:
            self._pump.wake()

    async def run(self) -> RunState | None:
        """Write until the run has ended or rests and the sink has all of its items; returns the
        state of the run then, RUNNING when it was stopped before. Raises LostLease,
        ConfigurationError and Unavailable."""
        while not self.stopped:
            await self._look()
            if self._resend:
                await self._send_again()
            if await self._deliver() and not self._resend:
                return self._state
        return RunState.RUNNING

    async def _look(self) -> None:
        self._state, self._resend = await self._store.deliveries.look(self.held.proof)

    def _over(self) -> bool:
        return self._state is not RunState.RUNNING or self._resend

    # -- items in order

    async def _deliver(self) -> bool:
        memory = StorePositions(self._store, self.held, self._clock, own=self._once)
        self._pump = pump = SinkWriter(
            self._open(self.held.run),
            self._read,
            self._clock,
            self._rng,
            dead=self._reject,
            batch=BATCH,
            memory=memory,
            tries=TRIES,
        )
        memory.written = lambda: pump.counts.written
        if self.stopped:
            pump.stop()
        try:
            return await pump.run_until(self._over)
        finally:
            self._pump = None
            await pump.close()
            self.held = msgspec.structs.replace(self.held, position=pump.position)

    def _open(self, name: str) -> Sink:
        return open_sink(
            self._part.url,
            self._part.options,
            name=name,
            clock=self._clock,
            folder=self._outputs,
            limits=self._limits,
        )

    async def _read(self, after: int, limit: int) -> list[Record]:
        # Check the lease before every batch: a frozen center repeats at most one batch.
        await self._look()
        kept = await self._store.checkpoints.items(self.held.run, after, limit)
        return [Record(item.id, _data(item)) for item in kept]

    async def _reject(self, refused: Refused) -> None:
        held, now = self.held, self._clock.now()
        await self._store.deliveries.reject(held.proof, refused.position, refused.reason, now)
        told = (
            f"run {held.run}: {held.place} refuses item {refused.position}: {refused.reason};"
            f" see `skep data rejected {held.run}`"
        )
        await self._store.alerts.raise_(ALERT, held.job, told[:2000], now)

    # -- items that were refused and are sent again

    async def _send_again(self) -> None:
        """A sink that stores its position gets them under a separate name with separate numbers;
        else it would skip them as known."""
        name = f"{self.held.run} again" if self._once else self.held.run
        sink = self._open(name)
        try:
            known = await sink.open()
            while found := await self._store.deliveries.to_resend(self.held.proof, BATCH):
                for row, item in found:
                    reason = await self._sent(sink, row, item, known)
                    now = self._clock.now()
                    await self._store.deliveries.resent(self.held.proof, row.no, reason, now)
        finally:
            await sink.close()
        self._resend = False

    async def _sent(self, sink: Sink, row: RejectedItem, item: KeptItem | None, known: int) -> str:
        """Why it was refused again; "" = it was accepted."""
        if item is None:
            return "the item is no longer stored"
        if self._once and row.ticket <= known:
            return ""  # it was written just before a center died
        position = row.ticket if self._once else row.item
        refused = await self._written(sink, Record(position, _data(item)))
        return refused[0].reason if refused else ""

    async def _written(self, sink: Sink, record: Record) -> list[Refused]:
        try:
            return await sink.write([record])
        except InvalidInput as error:
            return [Refused(record.position, error.detail)]


def _data(item: KeptItem) -> dict[str, object]:
    data: dict[str, object] = msgspec.msgpack.decode(item.data)
    return data
