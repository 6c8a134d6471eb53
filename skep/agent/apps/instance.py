"""One instance on this agent, from the wish for it to its end. One task on the event loop.

Level-triggered: whatever was wished last holds, however often it was said. What it must
remember is on disk before it acts: an instance that has ended is not begun again because
its agent was killed.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Any

from skep.agent.apps.instance_record import InstanceRecord, InstanceRecords
from skep.agent.apps.instance_start import Starter
from skep.agent.apps.log_upload import Logs
from skep.agent.apps.process_watch import (
    Cause,
    DesiredState,
    ProcessWatch,
    either,
    end_by_force,
    let_go,
)
from skep.agent.apps.runner_contract import CannotRun, NotNow, ProcessExit, Start
from skep.model.jobs.app import INSTANCE_ENDS, AppSpec, InstanceState
from skep.runtime.backoff import Backoff
from skep.runtime.clock import Clock
from skep.runtime.signals import WakeUp
from skep.wire.messages import AppReport, AppWish

log = logging.getLogger(__name__)

RESTART = Backoff(first=1.0, cap=60.0, floor=1.0)
#: An instance that lived so long did not fail in a row.
STEADY_SECONDS = 60.0
#: The end of an instance is told when its log has arrived, or after so long.
FLUSH_SECONDS = 3.0
LAST_FLUSH_SECONDS = 1.0
#: So long what an ended program has left in its pipe is read.
OUTPUT_SECONDS = 2.0


@dataclass(frozen=True, slots=True)
class InstanceContext:
    """What every life on an agent stands on."""

    starter: Starter
    records: InstanceRecords
    clock: Clock
    rng: Random
    #: A center should hear of it.
    changed: Callable[[], None]


class InstanceTask:
    """Of one instance under one token. `run` it; `wish`, `cut_off`, `drop` and `close` are
    heard at any time."""

    def __init__(self, record: InstanceRecord, logs: Logs, ground: InstanceContext) -> None:
        self.record = record
        self.logs = logs
        self._ground = ground
        self._wish: AppWish | None = None
        self._news = WakeUp(ground.clock)
        self._soon = 0
        self._cut = ""
        self._dropped = False
        self._closing = False
        self._wishes = DesiredState(self._news, self._wanted, self._shall_pause, self._goes_on)
        #: Nothing of it runs, nor will.
        self.quiet = asyncio.Event()

    @property
    def key(self) -> tuple[str, int]:
        return self.record.run, self.record.no

    @property
    def is_cut_off(self) -> bool:
        return bool(self._cut)

    @property
    def lost_seconds(self) -> float:
        """0 when nothing of it would have to end."""
        return self._wish.spec.lost_seconds if self._wish is not None else 0.0

    def report(self) -> AppReport:
        return self.record.report()

    # What it is told.

    def set_desired(self, wish: AppWish) -> None:
        """The newest word of a center."""
        self._cut = ""
        if wish != self._wish:
            self._wish = wish
            self._news.notify()
        elif self.record.state is InstanceState.STARTING:
            self._news.notify()

    def cut_off(self, reason: str) -> None:
        """No center was heard for so long that another agent may get it: end it, for now."""
        self._cut = reason
        self._news.notify()

    def drop(self) -> None:
        """It is not ours (any more): end it, and forget it when its log has gone."""
        self._dropped = True
        self._news.notify()

    def close(self) -> None:
        """The agent ends."""
        self._closing = True
        self._news.notify()

    # What it does.

    async def run(self) -> None:
        """Returns when it was dropped and its log has gone, or the agent ends."""
        sending = asyncio.ensure_future(self.logs.run())
        try:
            try:
                await self._live()
            finally:
                self.quiet.set()
            if self._closing:
                await self.logs.flush(LAST_FLUSH_SECONDS)
            else:
                await self._part()
        finally:
            await let_go(sending)

    async def _live(self) -> None:
        await self._look_back()
        while not self._dropped and not self._closing:
            if self._rests():
                await self._news.wait()
            elif self._may_run():
                await self._attempt(self._spec())
            else:
                await self._stand_by()

    async def _look_back(self) -> None:
        """What an earlier agent began has ended with it. Nobody saw how."""
        if not self.record.begun:
            return
        while self._wish is None and not self._dropped and not self._closing:
            await self._news.wait()
        if self._wish is not None and self._wish.round == self.record.round:
            await self._interrupted("its agent ended while it ran")

    async def _interrupted(self, reason: str) -> None:
        """It was ended, and by no wish: it is begun again, if it may be."""
        if self._spec().restart == "never":
            await self._set(InstanceState.FAILED, f"{reason}; it is never restarted", begun=False)
        else:
            await self._set(InstanceState.STARTING, reason, begun=False)

    def _spec(self) -> AppSpec:
        assert self._wish is not None  # noqa: S101 - nothing is begun without a wish
        return self._wish.spec

    def _rests(self) -> bool:
        """Whether nothing is to be done until somebody says something."""
        wish, record = self._wish, self.record
        if wish is None:
            return True
        if wish.round > record.round:
            return False
        if record.state is InstanceState.STOPPED:
            return wish.state is InstanceState.STOPPED
        return record.state in INSTANCE_ENDS

    def _may_run(self) -> bool:
        wish = self._wish
        return wish is not None and wish.state is InstanceState.RUNNING and not self._cut

    async def _stand_by(self) -> None:
        """Nothing runs and nothing shall."""
        wish = self._wish
        if wish is not None and wish.state is InstanceState.STOPPED:
            await self._set(InstanceState.STOPPED, "told to stop", round=wish.round)
            return
        if self._cut:
            await self._set(InstanceState.STARTING, self._cut)
        elif wish is not None:
            await self._set(InstanceState.PAUSED, "it has not begun", round=wish.round)
        await self._news.wait()

    async def _attempt(self, spec: AppSpec) -> None:
        """Start it once, and see to its end."""
        assert self._wish is not None  # noqa: S101 - it may run
        if self._wish.round > self.record.round:
            self.record.failures = self._soon = 0
            await self._set(InstanceState.STARTING, "", round=self._wish.round, exit_code=None)
        elif self.record.state not in {InstanceState.STARTING, InstanceState.RUNNING}:
            await self._set(InstanceState.STARTING, "")
        try:
            start = await self._prepare(spec)
            if start is not None:
                try:
                    await self._run(spec, start)
                finally:
                    self._ground.starter.release(spec)
        except CannotRun as error:
            await self._end(InstanceState.FAILED, str(error))
        except NotNow as error:
            await self._again(str(error))
        except Exception as error:
            log.exception("application %s/%d", *self.key)
            await self._again(f"the agent stumbled over it: {error!r}")

    async def _prepare(self, spec: AppSpec) -> Start | None:
        """None when it shall not run any more: packages and images may be long on their way."""
        preparing = asyncio.ensure_future(self._ground.starter.ready(spec, self.record))
        try:
            while not preparing.done() and self._may_run() and self._wanted():
                await either(preparing, self._news.wait())
            return await preparing if preparing.done() else None
        finally:
            await let_go(preparing)

    @property
    def _over(self) -> bool:
        return self._dropped or self._closing

    async def _run(self, spec: AppSpec, start: Start) -> None:
        self.record.starts += 1
        await self._set(InstanceState.STARTING, "", begun=True)
        began = self._ground.clock.monotonic()
        try:
            running = await self._ground.starter.start(start)
        except (CannotRun, NotNow):
            self.record.begun = False
            raise
        reading = asyncio.ensure_future(self.logs.take(running.output))
        try:
            await self._set(InstanceState.RUNNING, "")
            cause = await ProcessWatch(running, spec, self._wishes, self._ground.clock).run()
            ending = await running.wait()
        finally:
            # However this task ends, nothing of the instance goes on behind its back.
            await asyncio.shield(end_by_force(running))
            await self._finish_reading(reading)
        await self._judge(spec, cause, ending, self._ground.clock.monotonic() - began)

    async def _finish_reading(self, reading: asyncio.Future[None]) -> None:
        await asyncio.wait((reading,), timeout=OUTPUT_SECONDS)
        await let_go(reading)

    # While it runs.

    def _wanted(self) -> bool:
        wish = self._wish
        if self._over or self._cut or wish is None:
            return False
        return wish.state is not InstanceState.STOPPED and wish.round <= self.record.round

    def _shall_pause(self) -> bool:
        return self._wish is not None and self._wish.state is InstanceState.PAUSED

    async def _goes_on(self, state: InstanceState | None, words: str) -> None:
        await self._set(state or self.record.state, words)

    # When it has ended.

    async def _judge(self, spec: AppSpec, cause: Cause, ending: ProcessExit, lived: float) -> None:
        self.record.begun = False
        self.record.exit_code = ending.code
        if cause is Cause.TIME:
            await self._end(
                InstanceState.FAILED, f"over its time of {spec.limits.time:g} s; {ending.words}"
            )
        elif cause is Cause.WISH:
            await self._told_to_end(ending)
        elif ending.code == 0 and spec.restart != "always":
            await self._end(InstanceState.DONE, ending.words)
        elif spec.restart == "never":
            await self._end(InstanceState.FAILED, ending.words)
        else:
            await self._restart(spec, ending, lived)

    async def _told_to_end(self, ending: ProcessExit) -> None:
        """By a wish, for a new round, because no center is heard, or because the agent ends."""
        wish = self._wish
        if self._closing and not self._dropped:
            await self._interrupted("its agent was ended")
        elif wish is not None and wish.state is InstanceState.STOPPED:
            await self._end(InstanceState.STOPPED, f"told to stop; {ending.words}")
        elif self._cut:
            await self._interrupted(self._cut)
        elif wish is not None and wish.round > self.record.round:
            await self._set(InstanceState.STARTING, "to be started anew")
        elif not self._dropped:
            await self._interrupted("it was ended, and is wanted again")

    async def _restart(self, spec: AppSpec, ending: ProcessExit, lived: float) -> None:
        if lived >= STEADY_SECONDS:
            self.record.failures = self._soon = 0
        if ending.code:
            self.record.failures += 1
        if self.record.failures > spec.restarts:
            words = f"{ending.words}, {self.record.failures} times in a row"
            await self._end(InstanceState.FAILED, words)
        else:
            await self._again(ending.words)

    async def _again(self, reason: str) -> None:
        """After a while, unless something is said before."""
        self._soon += 1
        delay = RESTART.delay(self._soon, self._ground.rng)
        await self._set(InstanceState.STARTING, f"{reason}; again in {delay:.0f} s", begun=False)
        deadline = self._ground.clock.monotonic() + delay
        while self._may_run() and not self._over:
            left = deadline - self._ground.clock.monotonic()
            if left <= 0 or (self._wish is not None and self._wish.round > self.record.round):
                return
            await self._news.wait(left)

    async def _end(self, state: InstanceState, reason: str) -> None:
        """Who hears of the end finds the log complete, if a center takes it soon."""
        await self.logs.flush(FLUSH_SECONDS)
        await self._set(state, reason, begun=False)

    async def _set(self, state: InstanceState, reason: str, **changes: Any) -> None:
        """On disk, and then for a center."""
        record = self.record
        before = (record.state, record.reason, record.starts, record.round, record.begun)
        record.state, record.reason = state, reason
        for name, value in changes.items():
            setattr(record, name, value)
        if before == (state, reason, record.starts, record.round, record.begun):
            return
        await asyncio.to_thread(self._ground.records.keep, record)
        self._ground.changed()

    async def _part(self) -> None:
        """Its log goes first; one that no center wants goes nowhere."""
        while not self.logs.all_sent and not self._closing:
            await self.logs.flush(FLUSH_SECONDS)
            if self.logs.refused:
                break
        if not self._closing:
            await asyncio.to_thread(self._ground.records.forget, self.record)
