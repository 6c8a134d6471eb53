"""Assembles an agent: heartbeats, leasing, downloads and reports around its held blocks.

One process runs one agent (an embedded center may hold several). It only connects out. It ends by
draining: no more leases, running downloads may finish, finished work is reported, unfinished work
is given back.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from random import Random

import msgspec

from skep.agent.agent_folder import AgentFolder
from skep.agent.agent_session import AgentSession
from skep.agent.apps.capabilities import NOTHING, Offer
from skep.agent.apps.instances import AppRunner
from skep.agent.heartbeat import FINAL, HeartbeatHooks, HeartbeatLoop
from skep.agent.hosts.host_scheduler import HostScheduler, gate_of
from skep.agent.log_lines import AgentLogs
from skep.agent.machine_figures import MachineFigures
from skep.agent.redial import Redialer, line_figures, wait_until
from skep.agent.work.download_starter import DownloadStarter
from skep.agent.work.held_blocks import HeldBlocks
from skep.agent.work.leasing import Leaser
from skep.agent.work.outbox import Outbox
from skep.agent.work.reporting import Reporter
from skep.agent.work.run_downloaders import RunDownloaders
from skep.agent.work.run_session_files import RunSessionFiles
from skep.downloaders.ports import Kind, RedialKind
from skep.errors import Fenced, Revoked
from skep.model.block import Held
from skep.model.fleet.agent import Registration, Vitals
from skep.model.run import RunSettings
from skep.runtime.clock import Clock
from skep.settings import Settings
from skep.wire.client import CenterClient
from skep.wire.messages import Command, HeartbeatReply, Registered

log = logging.getLogger(__name__)

#: Seconds after the drain: for aborted downloads to end or log lines, and for the last reports.
ABORT_SECONDS = 2.0
FLUSH_SECONDS = 5.0
LEASE_GRACE = 0.25
#: Seconds between two checks of the cookies of runs.
SESSION_FILES_EVERY = 5.0


class Agent:
    """`run` it; `stop` (or `drain`) ends it in order, `abort` at once."""

    def __init__(
        self,
        settings: Settings,
        client: CenterClient,
        kinds: Mapping[str, Kind],
        registration: Registration,
        clock: Clock,
        rng: Random,
        folder: Path,
        offer: Offer = NOTHING,
    ) -> None:
        self.id = registration.id
        self._settings = settings.agent
        self._client = client
        self._clock = clock
        self._stop = asyncio.Event()
        self._ended = asyncio.Event()
        self._main: asyncio.Task[None] | None = None
        #: Another process is this agent, or its token was revoked: it holds nothing any more.
        self._over: Fenced | Revoked | None = None
        #: The caller must run it again when it has ended.
        self.restarting = False
        self._gauge = MachineFigures(folder=folder)
        self.workspace = AgentFolder(folder)
        self.session = AgentSession(folder)
        self.outbox = Outbox(folder / "outbox", self._settings.outbox_bytes, self.id)
        self.holding = HeldBlocks(clock.monotonic, gate_of(settings.sites))
        self.session_files = RunSessionFiles(folder, self.workspace.remembers)
        self.downloaders = RunDownloaders(kinds, clock.monotonic, self.session_files)
        pulse = HeartbeatHooks(
            self.vitals,
            self._held,
            self._answered,
            self._center_is_back,
            self.workspace.names,
            self._taken,
        )
        self.heartbeats = HeartbeatLoop(client, registration, pulse, clock, rng, self.session)
        self.downloaders.on_trouble = self.heartbeats.note_trouble
        self.reporter = Reporter(
            self.id, client, self.holding, self.outbox, self._settings, clock, rng
        )
        self.host_scheduler = HostScheduler(
            self.holding, self.downloaders, self.workspace.settings_of, self.heartbeats.alive
        )
        self.pump = DownloadStarter(
            self.holding,
            self.downloaders,
            self.host_scheduler,
            self.workspace.settings_of,
            self._settings.concurrency,
            self._after_round,
        )
        self.leaser = Leaser(
            self.id,
            registration.kinds,
            client,
            self.holding,
            self.workspace,
            self._settings,
            self._blocks_came,
            self.heartbeats.alive_since,
            clock,
            rng,
        )
        self.logs = AgentLogs(self.id, folder / "logs", settings.logs, client, clock, rng)
        self.apps = AppRunner(
            self.id, self._settings, offer, client, clock, rng, folder / "apps", self.logs.of_run
        )
        self.reporter.relieved = self.pump.wake
        if client.alternatives:
            self.reporter.slow = self.leaser.slow = self.heartbeats.send_now
        self.redialer = Redialer(self._settings, self.downloaders, clock, self.pump.wake)
        self._line_kinds = [kind for kind in kinds.values() if isinstance(kind, RedialKind)]
        for kind in self._line_kinds:
            kind.redial = self.redialer.ask if self.redialer.able else None

    async def run(self) -> None:
        """Runs until it is stopped. Raises Unauthorized, Forbidden or OldProtocol at the start, and
        Fenced or Revoked when it is no longer this agent."""
        self._main = asyncio.current_task()
        try:
            await asyncio.to_thread(self._open)
            await self.apps.open()
            if await self._registered():
                await self._work()
        finally:
            await self.apps.abort()
            await asyncio.to_thread(self.logs.close)
            await self.redialer.close()
            await self.downloaders.close_all()
            self._ended.set()

    def stop(self) -> None:
        """Drain and end; returns at once."""
        self._stop.set()

    async def drain(self) -> None:
        """Drain, and return when the agent has ended."""
        self.stop()
        await self._ended.wait()

    def abort(self) -> None:
        """End now: leases expire, files on disk stay."""
        if self._main is not None:
            self._main.cancel()

    def vitals(self) -> Vitals:
        """The health figures of the agent."""
        vitals = self._gauge.read(
            active=self.holding.active,
            rate=self.leaser.pace.rate,
            outbox=self.outbox.results,
            dropped=self.outbox.dropped + self.reporter.refused,
        )
        trouble, trouble_age = self.heartbeats.trouble
        return msgspec.structs.replace(
            vitals,
            trouble=trouble,
            trouble_age=trouble_age,
            outbox_age=round(self.outbox.age, 1),
            set_aside=self.outbox.foreign,
            **line_figures(self._line_kinds),
            redials=self.redialer.count,
        )

    def _open(self) -> None:
        self.workspace.open()
        self.session_files.open()
        self.outbox.open()
        self.session.open()
        self.logs.open()

    async def _registered(self) -> bool:
        """False when the agent was stopped before a center accepted it."""
        register = asyncio.ensure_future(self.heartbeats.register())
        stopped = asyncio.ensure_future(self._stop.wait())
        try:
            await asyncio.wait((register, stopped), return_when=asyncio.FIRST_COMPLETED)
            return register.done() and bool(register.result())
        finally:
            register.cancel()
            stopped.cancel()

    async def _work(self) -> None:
        async with asyncio.TaskGroup() as group:
            loops = [
                group.create_task(self._heartbeats()),
                group.create_task(self.leaser.run()),
                group.create_task(self.reporter.run()),
                group.create_task(self._listen()),
                group.create_task(self._close_idle()),
                group.create_task(self._save_session_files()),
                group.create_task(self.apps.run()),
                group.create_task(self.logs.run()),
            ]
            self.reporter.center_is_back()
            await self._stop.wait()
            if self._over is None:
                await self._let_go()
            for loop in loops:
                loop.cancel()
        if isinstance(self._over, Fenced):
            raise self._over
        self.reporter.save_rest()
        if self._over is not None:
            raise self._over
        await self.logs.flush(ABORT_SECONDS)
        await self._final_heartbeat()

    async def _heartbeats(self) -> None:
        try:
            await self.heartbeats.run()
        except FINAL as error:
            # Nothing is given back or reported: all of it belongs to the other process, or no
            # center would accept it.
            self._over = error
            self.stop()

    async def _final_heartbeat(self) -> None:
        with contextlib.suppress(*FINAL):
            await self.heartbeats.final_heartbeat()
        if self.leaser.asking:
            await self.heartbeats.sign_off()

    async def _let_go(self) -> None:
        """The drain. Heartbeats continue meanwhile, so that no lease is lost."""
        log.info("draining: %d downloads are running", self.holding.active)
        self.apps.close()
        returned = self.reporter.returned
        self.holding.closing = True
        self.holding.withdraw()
        self.downloaders.recall(None)
        self.reporter.report_now()
        await self._until_idle(self._settings.drain_seconds)
        await self.downloaders.close_all()
        await asyncio.to_thread(self.session_files.save)
        if not await self._until_idle(ABORT_SECONDS):
            self.holding.abandon_running()
        await self.apps.closed()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(FLUSH_SECONDS):
                await self.reporter.flush()
                if self.reporter.returned > returned:
                    await self._hang_up()
                    await self.reporter.flush()

    async def _hang_up(self) -> None:
        """A lease call that waits at the center may be answered with the blocks that were just
        given back: wait for its answer for a moment."""
        await wait_until(self._clock, LEASE_GRACE, lambda: not self.leaser.asking)

    async def _until_idle(self, seconds: float) -> bool:
        return await wait_until(self._clock, seconds, lambda: not self.holding.active)

    def _blocks_came(self) -> None:
        self.pump.wake()
        self.reporter.report_now()

    def _after_round(self) -> None:
        if self.holding.ready:
            self.reporter.report_now()
        self.leaser.consider()

    def _held(self) -> list[Held]:
        """Leases to renew: blocks in work, and reports on disk."""
        held = self.holding.held()
        return [*held, *self.outbox.held().difference(held)] if len(self.outbox) else held

    async def _answered(self, sent: list[Held], reply: HeartbeatReply) -> None:
        if reply.lost:
            lost = set(reply.lost)
            # By the token that was sent: the block may have been leased again meanwhile.
            gone = [held for held in sent if held.block in lost]
            # They may be gone already when their last report crossed the heartbeat.
            if count := self.holding.lose(gone):
                log.warning("the center took %d blocks back", count)
            self.outbox.forget_leases(gone)
            self.pump.wake()
        self.apps.heartbeat()
        await self._forget(reply.released)
        for command in reply.commands:
            await self.execute(command)
        if reply.lease is not None:
            await self.leaser.take(reply.lease, self._clock.monotonic())

    async def _taken(self, rules: Registered) -> None:
        """A center accepted the agent: apply its rules, and delete runs that have ended."""
        if rules.session:
            await asyncio.to_thread(self.session.taken)
        if rules.sites is not None:
            self.holding.gate.follow(
                adaptive=rules.sites.adaptive,
                breaker_after=rules.sites.breaker_after,
                crawl_delay_cap=rules.sites.crawl_delay_cap,
            )
        self.logs.center_takes(rules.takes_logs)
        await asyncio.to_thread(self.session_files.unlock, rules.key)
        await self._forget(rules.released)

    def _center_is_back(self) -> None:
        self.reporter.center_is_back()
        self.leaser.wake()
        self.apps.ask_now()

    async def _listen(self) -> None:
        async for command in self._client.commands(self.id):
            await self.execute(command)

    async def execute(self, command: Command) -> None:
        """Execute a command. A repeated command changes nothing."""
        if command.order and not self.heartbeats.acknowledge(command.order):
            return
        match command.name:
            case "wake" | "resume":
                self.leaser.wake()
            case "apps":
                self.apps.ask_now()
            case "allocate":
                await self._allocate(command)
            case "pause":
                self._hand_over(command.run)
            case "release":
                await self._release(command.run)
            case "drain":
                log.info("draining by command: unstarted work goes back")
                self._hand_over(None)
            case "exit" | "restart":
                log.info("executing command %s", command.name)
                self.restarting = command.name == "restart"
                self.stop()
            case _:
                log.warning("the center sent an unknown command: %r", command.name)
        if command.ticket:
            self.heartbeats.answer(command.ticket)

    async def _allocate(self, command: Command) -> None:
        """Settings in `detail` are stored; without, they come with a block."""
        if command.detail:
            try:
                settings = msgspec.json.decode(command.detail, type=RunSettings)
            except msgspec.DecodeError as error:
                log.warning("allocate %s: %s", command.run, error)
            else:
                await asyncio.to_thread(self.workspace.allocate, command.run, settings)
        self.leaser.wake()

    def _hand_over(self, run: str | None) -> None:
        """Unstarted work of a paused run, or of all runs (None), goes back to the center, which
        stores it: an agent that held it would have to be informed of the end of the pause."""
        self.leaser.refuse(run)
        self.holding.withdraw(run)
        self.downloaders.recall(run)
        self.reporter.report_now()
        self.pump.wake()

    async def _forget(self, runs: Sequence[str]) -> None:
        """These runs have ended. Running downloads may finish; the files are deleted at once."""
        for run in runs:
            if self.holding.has(run):
                await asyncio.to_thread(self.workspace.hide, run)
                await asyncio.to_thread(self.session_files.hide, run)
            else:
                await self._release(run)

    async def _release(self, run: str) -> None:
        self._hand_over(run)
        await self.downloaders.close(run)
        await asyncio.to_thread(self.workspace.release, run)
        await asyncio.to_thread(self.session_files.drop, run)

    async def _close_idle(self) -> None:
        idle = self._settings.idle_close
        while True:
            await self._clock.sleep(max(min(idle / 4, 2.0), 0.02))
            await self.downloaders.close_idle(idle)

    async def _save_session_files(self) -> None:
        """Saves sessions, so that a killed agent continues with those of some seconds ago."""
        while True:
            await self._clock.sleep(SESSION_FILES_EVERY)
            await self.downloaders.note()
            await asyncio.to_thread(self.session_files.save)
