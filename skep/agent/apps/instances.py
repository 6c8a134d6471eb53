"""The instances of an agent, and their desired states. Runs on the event loop.

Level-triggered: every call reports all instances, and the answer contains all desired ones. New
instances are started, others are ended. An agent that gets no answer of a center for too long
ends instances that another agent may get by then.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from math import inf
from pathlib import Path
from random import Random

from skep.agent.apps.capabilities import Offer
from skep.agent.apps.instance import InstanceContext, InstanceTask
from skep.agent.apps.instance_record import InstanceRecord, InstanceRecords
from skep.agent.apps.instance_start import Starter
from skep.agent.apps.log_spool import Spool
from skep.agent.apps.log_upload import LinesOf, Logs, no_lines
from skep.agent.apps.orphan_processes import end_marked
from skep.agent.apps.packages import Packages
from skep.agent.apps.wheel_install import Installer
from skep.errors import SkepError
from skep.model.jobs.app import InstanceState
from skep.model.logs import LogSourceKind
from skep.runtime.clock import Clock
from skep.runtime.signals import WakeUp
from skep.settings import AgentSettings
from skep.wire.client import CenterClient
from skep.wire.messages import AppsAsk, AppsReply

log = logging.getLogger(__name__)

#: Part of `lost_seconds` for which an instance continues without an answer of a center.
PATIENCE = 0.8
#: Seconds for which a change waits for others.
LINGER = 0.02

Key = tuple[str, int]


@dataclass(slots=True)
class _RunningInstance:
    life: InstanceTask
    task: asyncio.Task[None]


class AppRunner:
    """`open` it, `run` it as a task, `close` it when the agent ends."""

    def __init__(
        self,
        agent: str,
        settings: AgentSettings,
        offer: Offer,
        client: CenterClient,
        clock: Clock,
        rng: Random,
        folder: Path,
        lines: LinesOf = no_lines,
    ) -> None:
        """`lines` gives a place for the log lines of an instance."""
        self._agent = agent
        self._lines = lines
        self._settings = settings
        self._offer = offer
        self._client = client
        self._clock = clock
        self._rng = rng
        # Applications are started in another working directory.
        folder = folder.absolute()
        self._records = InstanceRecords(folder / "instances")
        place, installer = folder / "packages", Installer(offer.isolation)
        self._packages = Packages(place, settings.packages_bytes, client, installer)
        starter = Starter(
            agent,
            self._records,
            self._packages,
            offer.processes(settings),
            offer.containers(settings),
        )
        self._news = WakeUp(clock)
        self._ground = InstanceContext(starter, self._records, clock, rng, self._news.notify)
        #: The newest token of each instance.
        self._lives: dict[Key, _RunningInstance] = {}
        #: No longer desired, and not ended yet.
        self._leaving: list[_RunningInstance] = []
        #: When the last answered call was sent; -inf before the first.
        self._heard = -inf
        self._closing: asyncio.Future[None] | None = None

    def __len__(self) -> int:
        return len(self._lives)

    async def open(self) -> None:
        """Load the records of earlier processes of the agent, and end their leftover processes."""
        await asyncio.to_thread(self._packages.open)
        await asyncio.to_thread(self._sweep)
        for record in await asyncio.to_thread(self._records.open):
            if record.begun:
                record.state, record.reason = InstanceState.STARTING, "its agent was restarted"
            await self._begin(record)

    def _sweep(self) -> None:
        if left := end_marked((f"SKEP_AGENT={self._agent}".encode(),)):
            log.warning("ended %d application processes of an earlier agent process", left)
        if self._offer.engine is not None:
            self._offer.engine.sweep()

    async def run(self) -> None:
        """Report and apply, without end. An agent that runs no applications makes no calls."""
        if self._lives or self._offer.kinds:
            self._news.notify()
        while True:
            await self._news.wait(self._until_cut_off())
            self._cut_off_lonely()
            await self._clock.sleep(LINGER)
            await self._ask()

    def heartbeat(self) -> None:
        """A center answers: report the instances, if there are any."""
        if self._lives or (self._offer.kinds and self._heard == -inf):
            self._news.notify()

    def ask_now(self) -> None:
        """A center reports a change, or answers again."""
        self._news.notify()
        for lived in (*self._lives.values(), *self._leaving):
            lived.life.logs.send_now()

    async def _ask(self) -> bool:
        sent = self._clock.monotonic()
        reports = [lived.life.report() for lived in self._lives.values()]
        try:
            reply = await self._client.apps(AppsAsk(self._agent, reports))
        except SkepError as error:
            log.debug("applications: %s", error.detail)
            if not self._lives and not error.retryable:
                self._heard = sent  # an older center; it sends a command when needed
            return False
        if self._closing is None:
            self._heard = sent
            await self._reconcile(reply)
        return True

    async def _reconcile(self, reply: AppsReply) -> None:
        wanted = {(wish.run, wish.no): wish for wish in reply.wanted}
        for key, lived in list(self._lives.items()):
            wish = wanted.get(key)
            if wish is None or wish.token != lived.life.record.token:
                self._drop(key)
        for key, wish in wanted.items():
            if key not in self._lives:
                await self._begin(InstanceRecord(wish.run, wish.no, wish.token, wish.round))
            self._lives[key].life.set_desired(wish)
        self._leaving = [lived for lived in self._leaving if not lived.task.done()]

    def _drop(self, key: Key) -> None:
        lived = self._lives.pop(key)
        lived.life.drop()
        self._leaving.append(lived)

    async def _begin(self, record: InstanceRecord) -> None:
        key = (record.run, record.no)
        if key in self._lives:  # of an earlier agent process, under another token
            self._drop(key)
        folder = await asyncio.to_thread(self._records.folder, record)
        spool = Spool(folder / "log", self._settings.app_log_bytes)
        lines = self._lines(LogSourceKind.APP, record.run, f"{record.run}/{record.no}")
        logs = Logs(self._agent, record.key, spool, self._client, self._clock, self._rng, lines)
        await logs.open()
        life = InstanceTask(record, logs, self._ground)
        before = [lived.life.quiet for lived in self._leaving if lived.life.key == key]
        task = asyncio.ensure_future(_after(before, life))
        task.add_done_callback(_say_trouble)
        self._lives[key] = _RunningInstance(life, task)

    # No center answers.

    def _deadlines(self) -> list[tuple[float, InstanceTask]]:
        lives = [lived.life for lived in self._lives.values()]
        return [
            (self._heard + PATIENCE * life.lost_seconds, life)
            for life in lives
            if life.lost_seconds > 0 and not life.is_cut_off
        ]

    def _until_cut_off(self) -> float | None:
        due = min((deadline for deadline, _ in self._deadlines()), default=None)
        return None if due is None else max(due - self._clock.monotonic(), 0.0)

    def _cut_off_lonely(self) -> None:
        now = self._clock.monotonic()
        for deadline, life in self._deadlines():
            if now >= deadline:
                life.cut_off(f"ended for now: no center answered for {now - self._heard:.0f} s")

    # Shutdown.

    def close(self) -> None:
        """Start to end all of them, each within its own time; then inform the center."""
        self._closing = asyncio.ensure_future(self._close())

    async def closed(self) -> None:
        """After `close`: return when all have ended."""
        if self._closing is not None:
            await self._closing

    async def _close(self) -> None:
        everyone = [*self._lives.values(), *self._leaving]
        for lived in everyone:
            lived.life.close()
        if everyone:
            await asyncio.wait([lived.task for lived in everyone])
        if self._lives:
            await self._ask()

    async def abort(self) -> None:
        """End all of them now, if they have not ended."""
        tasks: list[asyncio.Future[None]] = [
            lived.task for lived in (*self._lives.values(), *self._leaving)
        ]
        if self._closing is not None:
            tasks.append(self._closing)
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)


async def _after(before: list[asyncio.Event], life: InstanceTask) -> None:
    """Start the new task of an instance when no process of the old one runs any more."""
    for gone in before:
        await gone.wait()
    await life.run()


def _say_trouble(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        log.error("unexpected error in the task of an application", exc_info=error)
