"""One instance on this agent, from its desired state to its end. One task on the event loop.

Level-triggered: the latest desired state applies, however often it is sent. Everything that it
must remember is on disk before it acts: an ended instance is not restarted because its agent was
killed.
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
#: Seconds after which a failure does not count as consecutive.
STEADY_SECONDS = 60.0
#: Maximum seconds that the report of an end waits for the log.
FLUSH_SECONDS = 3.0
LAST_FLUSH_SECONDS = 1.0
#: Seconds for which the output of an ended program is read.
OUTPUT_SECONDS = 2.0


@dataclass(frozen=True, slots=True)
class InstanceContext:
    """What all instances of an agent share."""

    starter: Starter
    records: InstanceRecords
    clock: Clock
    rng: Random
    #: Called when a center should be informed.
    changed: Callable[[], None]


class InstanceTask:
    """One instance under one token. `run` it; `set_desired`, `cut_off`, `drop` and `close` can be
    called at any time."""

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
        #: No process of it runs or will run.
        self.quiet = asyncio.Event()

    @property
    def key(self) -> tuple[str, int]:
        return self.record.run, self.record.no

    @property
    def is_cut_off(self) -> bool:
        return bool(self._cut)

    @property
    def lost_seconds(self) -> float:
        """Seconds after which it must end without a center; 0 = no process runs."""
        return self._wish.spec.lost_seconds if self._wish is not None else 0.0

    def report(self) -> AppReport:
        return self.record.report()

    # Commands.

    def set_desired(self, wish: AppWish) -> None:
        """The latest desired state of a center."""
        self._cut = ""
        if wish != self._wish:
            self._wish = wish
            self._news.notify()
        elif self.record.state is InstanceState.STARTING:
            self._news.notify()

    def cut_off(self, reason: str) -> None:
        """No center answered for so long that another agent may get it: end it for now."""
        self._cut = reason
        self._news.notify()

    def drop(self) -> None:
        """It does not belong to this agent: end it, and delete it when its log was sent."""
        self._dropped = True
        self._news.notify()

    def close(self) -> None:
        """The agent ends."""
        self._closing = True
        self._news.notify()

    # The task.

    async def run(self) -> None:
        """Returns when it was dropped and its log was sent, or when the agent ends."""
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
        """Processes of an earlier agent process have ended with it, without an exit code."""
        if not self.record.begun:
            return
        while self._wish is None and not self._dropped and not self._closing:
            await self._news.wait()
        if self._wish is not None and self._wish.round == self.record.round:
            await self._interrupted("its agent ended while it was running")

    async def _interrupted(self, reason: str) -> None:
        """It ended without a command: it is restarted, if allowed."""
        if self._spec().restart == "never":
            await self._set(InstanceState.FAILED, f"{reason}; it is never restarted", begun=False)
        else:
            await self._set(InstanceState.STARTING, reason, begun=False)

    def _spec(self) -> AppSpec:
        assert self._wish is not None  # noqa: S101 - starts need a desired state
        return self._wish.spec

    def _rests(self) -> bool:
        """Whether it waits for a new desired state."""
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
        """No process runs, and none is desired."""
        wish = self._wish
        if wish is not None and wish.state is InstanceState.STOPPED:
            await self._set(InstanceState.STOPPED, "stopped by command", round=wish.round)
            return
        if self._cut:
            await self._set(InstanceState.STARTING, self._cut)
        elif wish is not None:
            await self._set(InstanceState.PAUSED, "it has not started", round=wish.round)
        await self._news.wait()

    async def _attempt(self, spec: AppSpec) -> None:
        """Start it once, and supervise it until it ends."""
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
            await self._again(f"unexpected error in the agent: {error!r}")

    async def _prepare(self, spec: AppSpec) -> Start | None:
        """None when it is no longer desired: packages and images can take long to arrive."""
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
            # However this task ends, no process of the instance may continue.
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
                InstanceState.FAILED, f"over its limit of {spec.limits.time:g} s; {ending.words}"
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
        """Ended by a command, for a new round, without a center, or because the agent ends."""
        wish = self._wish
        if self._closing and not self._dropped:
            await self._interrupted("its agent was stopped")
        elif wish is not None and wish.state is InstanceState.STOPPED:
            await self._end(InstanceState.STOPPED, f"stopped by command; {ending.words}")
        elif self._cut:
            await self._interrupted(self._cut)
        elif wish is not None and wish.round > self.record.round:
            await self._set(InstanceState.STARTING, "restarting")
        elif not self._dropped:
            await self._interrupted("it was stopped, and is desired again")

    async def _restart(self, spec: AppSpec, ending: ProcessExit, lived: float) -> None:
        if lived >= STEADY_SECONDS:
            self.record.failures = self._soon = 0
        if ending.code:
            self.record.failures += 1
        if self.record.failures > spec.restarts:
            words = f"{ending.words}, {self.record.failures} consecutive times"
            await self._end(InstanceState.FAILED, words)
        else:
            await self._again(ending.words)

    async def _again(self, reason: str) -> None:
        """Retry after a while, unless the desired state changes before."""
        self._soon += 1
        delay = RESTART.delay(self._soon, self._ground.rng)
        await self._set(InstanceState.STARTING, f"{reason}; retrying in {delay:.0f} s", begun=False)
        deadline = self._ground.clock.monotonic() + delay
        while self._may_run() and not self._over:
            left = deadline - self._ground.clock.monotonic()
            if left <= 0 or (self._wish is not None and self._wish.round > self.record.round):
                return
            await self._news.wait(left)

    async def _end(self, state: InstanceState, reason: str) -> None:
        """Reports the end after the log, if a center accepts it soon."""
        await self.logs.flush(FLUSH_SECONDS)
        await self._set(state, reason, begun=False)

    async def _set(self, state: InstanceState, reason: str, **changes: Any) -> None:
        """Store the state on disk, then inform a center."""
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
        """Sends its log first; a log that no center accepts is dropped."""
        while not self.logs.all_sent and not self._closing:
            await self.logs.flush(FLUSH_SECONDS)
            if self.logs.refused:
                break
        if not self._closing:
            await asyncio.to_thread(self._ground.records.forget, self.record)
