"""Carries the items of a job's run into the job's sinks. Run by the center that holds it.

Items are in the store before they come here, so nothing is lost when this ends: whoever
holds the run next goes on from the position that the sink, or a small file, has kept.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial
from hashlib import blake2b
from pathlib import Path
from random import Random

import msgspec

from skep.errors import SkepError
from skep.model.job import SinkPart
from skep.runtime.clock import Clock
from skep.store.ports import Store
from skep.streams.host_rules import JobLimits
from skep.streams.ports import Record, Refused
from skep.streams.pump import SinkPump
from skep.streams.registry import ONCE, kind_of, open_sink, secrets_hidden

BATCH = 1000
#: Seconds without progress, when the run has ended, for a sink that is away.
LAST_PATIENCE = 60.0


class Outflow:
    """The sinks of one run: `start` them, `finish` them when the run has ended."""

    def __init__(
        self,
        run: str,
        job: str,
        store: Store,
        folder: Path,
        outputs: Path,
        limits: JobLimits,
        clock: Clock,
        rng: Random,
    ) -> None:
        self._run = run
        self._job = job
        self._store = store
        self._folder = folder
        self._outputs = outputs
        self._limits = limits
        self._clock = clock
        self._rng = rng
        self._ended = asyncio.Event()
        self._flows: list[tuple[SinkPump, asyncio.Task[None]]] = []

    def start(self, sinks: Sequence[SinkPart]) -> None:
        """Raises ConfigurationError for one that cannot be opened."""
        if sinks:
            self._outputs.mkdir(parents=True, exist_ok=True)
        for part in sinks:
            sink = open_sink(
                part.url,
                part.options,
                name=self._run,
                clock=self._clock,
                folder=self._outputs,
                limits=self._limits,
            )
            pump = SinkPump(
                sink,
                self._read,
                self._clock,
                self._rng,
                dead=partial(self._bury, part.url),
                batch=BATCH,
                memory=self._memory(part.url),
            )
            self._flows.append((pump, asyncio.create_task(self._carry(pump, part.url))))

    async def finish(self) -> None:
        """Everything that the run has is in the sinks, or an alert says why not."""
        self._ended.set()
        for pump, task in self._flows:
            pump.wake()
            while not task.done():
                before = pump.position
                await asyncio.wait({task}, timeout=LAST_PATIENCE)
                if not task.done() and pump.position == before:
                    await self._alert("a sink of the run does not answer; its items wait")
                    break
        await self.close()

    async def close(self) -> None:
        """Let go; the batch under way is finished."""
        for pump, _ in self._flows:
            pump.stop()
        await asyncio.gather(*(task for _, task in self._flows), return_exceptions=True)
        for pump, _ in self._flows:
            await pump.close()
        self._flows.clear()

    async def _carry(self, pump: SinkPump, url: str) -> None:
        try:
            await pump.run_until(self._ended.is_set)
        except SkepError as error:
            await self._alert(f"{secrets_hidden(url)}: {error.detail}")

    async def _read(self, after: int, limit: int) -> list[Record]:
        kept = await self._store.turns.items(self._run, after, limit)
        return [Record(item.id, msgspec.msgpack.decode(item.data)) for item in kept]

    async def _bury(self, url: str, refused: Refused) -> None:
        place = secrets_hidden(url)
        await self._alert(f"{place} refuses item {refused.position}: {refused.reason}")

    async def _alert(self, detail: str) -> None:
        told = f"run {self._run}: {detail}"[:2000]
        await self._store.alerts.raise_("job_sink", self._job, told, self._clock.now())

    def _memory(self, url: str) -> Path | None:
        if kind_of(url).promise == ONCE:
            return None
        self._folder.mkdir(parents=True, exist_ok=True)
        digest = blake2b(url.encode(), digest_size=8).hexdigest()
        return self._folder / f"{self._run}-{digest}.position"
