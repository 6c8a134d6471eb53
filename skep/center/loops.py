"""The background loops of a center: dispatch, sweep, reconcile, listen.

Each loop survives an unavailable store or bus: it logs the error once, waits, and continues.
A loop must never end except by cancellation.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable

import msgspec

from skep.center.agent_commands import CHANNEL, WORK, Addressed
from skep.center.dispatcher_tasks import CHANNEL as ERRANDS
from skep.center.services import Services
from skep.errors import SkepError, Unavailable
from skep.jobs.runs.run_control import CHANNEL as RUNS
from skep.lanes.dispatch import dispatch_in_time

log = logging.getLogger(__name__)

#: Seconds between two dispatch rounds without a wake-up, for requests that become due.
DISPATCH_EVERY = 0.5
PAUSE_AFTER_TROUBLE = 0.5
HOUSEKEEPING_EVERY = 600.0
ANNOUNCE_EVERY = 0.05
#: Seconds for which used and revoked one-time tokens, and tokens of runs, are kept.
TOKENS_KEPT = 90 * 86400.0
#: Seconds between two checks for timed-out drivers; they send several heartbeats in it.
DRIVERS_EVERY = 60.0
DISK_EVERY = 1.0
#: Seconds between two look-ups of runs that agents remember; an agent forgets an ended run
#: after two heartbeats plus this time.
ENDED_EVERY = 1.0
NOTICES_EVERY = 1.0
#: Seconds for which notices are listed after they were sent.
NOTICES_KEPT = 30 * 86_400.0
#: Seconds before retention first runs after a start, and its pause while a disk stays full.
RETENTION_FIRST = 5.0

_addressed = msgspec.msgpack.Decoder(Addressed)


class Loops:
    """Started and stopped with the center."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._tasks: list[asyncio.Task[None]] = []
        self._over = False

    def start(self) -> None:
        settings = self._services.settings
        steps: tuple[tuple[str, Callable[[], Awaitable[None]]], ...] = (
            ("dispatch", self._dispatch),
            ("sweep", self._every(settings.center.sweep_every, self._sweep)),
            ("reconcile", self._every(settings.lanes.reconcile_every, self._reconcile)),
            ("placement", self._every(settings.center.sweep_every, self._placement)),
            ("ended runs", self._every(ENDED_EVERY, self._services.ended_runs.look)),
            ("self-check", self._self_check),
            ("gauges", self._gauges),
            ("drivers", self._drivers),
            ("roster", self._every(settings.center.roster_every, self._roster)),
            ("housekeeping", self._every(HOUSEKEEPING_EVERY, self._housekeeping)),
            ("jobs", self._jobs),
            ("deliveries", self._deliveries),
            ("schedules", self._every(settings.jobs.schedule_every, self._fire)),
            ("disk", self._every(DISK_EVERY, self._services.disk.look)),
            ("retention", self._retention),
            ("notices", self._every(NOTICES_EVERY, self._notices)),
            ("listen", self._listen),
            ("announce", self._announce),
            ("errands", self._pass_on),
        )
        self._tasks = [asyncio.create_task(self._keep(name, step)) for name, step in steps]

    async def stop(self) -> None:
        self._over = True
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _keep(self, name: str, step: Callable[[], Awaitable[None]]) -> None:
        trouble = ""
        # Even if a step swallows its cancellation, no further step starts.
        while not self._over:
            try:
                await step()
                trouble = self._recovered(name, trouble)
            except Unavailable as error:
                trouble = self._log_once(name, trouble, error)
                self._services.roster.deaf()
                await self._services.clock.sleep(PAUSE_AFTER_TROUBLE)
            except SkepError as error:
                trouble = self._log_once(name, trouble, error)
                await self._services.clock.sleep(PAUSE_AFTER_TROUBLE)
            except Exception:
                log.exception("unexpected error in loop %s; continuing", name)
                await self._services.clock.sleep(PAUSE_AFTER_TROUBLE)

    def _log_once(self, name: str, trouble: str, error: SkepError) -> str:
        if trouble != error.code:
            log.warning("loop %s is waiting: %s", name, error.detail)
        return error.code

    def _recovered(self, name: str, trouble: str) -> str:
        if trouble:
            log.info("loop %s continues", name)
        return ""

    def _every(
        self, seconds: float, work: Callable[[], Awaitable[None]]
    ) -> Callable[[], Awaitable[None]]:
        async def step() -> None:
            await work()
            await self._services.clock.sleep(seconds)

        return step

    async def _dispatch(self) -> None:
        services, seconds = self._services, self._services.settings.lanes.dispatch_seconds
        while await dispatch_in_time(services.dispatcher, seconds):
            pass
        await self._services.signals.dispatcher.wait(DISPATCH_EVERY)

    async def _sweep(self) -> None:
        """Free the blocks of dead agents and those whose lease was not renewed."""
        services = self._services
        if not services.roster.may_judge:
            await services.roster.look_around()  # commands and sessions from other centers
            return
        dead = await services.roster.dead()
        freed = await services.leases.reap(dead)
        services.metrics.lease_expired.inc(len(freed))
        for item in freed:
            log.info("block %d is available again: %s", item.block, item.reason)

    async def _placement(self) -> None:
        await self._services.placement.gone_agents.step()

    async def _reconcile(self) -> None:
        found = await self._services.dispatcher.reconcile()
        if found:
            log.info("put %d ready blocks back into their lanes", found)

    async def _drivers(self) -> None:
        """Fail the runs whose driver has timed out (it hangs, was killed or is disconnected).
        Pauses first: after a restart of the center, drivers need time for a heartbeat."""
        services = self._services
        await services.clock.sleep(DRIVERS_EVERY)
        for run in await services.store.checkpoints.give_up_silent(services.clock.now()):
            log.warning("run %s has failed: the driver timed out", run)
            await services.control.moved(await services.store.runs.get(run))

    async def _self_check(self) -> None:
        """Pauses first: a starting center has its own unfinished work to resume."""
        services = self._services
        await services.clock.sleep(services.settings.center.self_check_every)
        await services.self_check.step()

    async def _gauges(self) -> None:
        services = self._services
        await services.clock.sleep(await services.gauges.look())

    async def _roster(self) -> None:
        await self._services.roster.refresh()

    async def _housekeeping(self) -> None:
        services = self._services
        oldest = services.clock.now() - services.settings.center.vitals_kept
        await services.store.agents.forget_vitals(oldest)
        await services.store.tokens.forget(services.clock.now() - TOKENS_KEPT)
        await services.store.figures.forget_rates(services.clock.now())
        await services.dispatcher.log.forget()
        await services.store.notices.forget_told(services.clock.now() - NOTICES_KEPT)
        await services.jobs.scheduler.heal()
        await services.jobs.scheduler.forget(services.settings.jobs.fires_kept)
        await services.jobs.feeder.forget()

    async def _retention(self) -> None:
        """At once when the disk is full, else at intervals."""
        services = self._services
        await services.clock.sleep(RETENTION_FIRST)
        waited = 0.0
        deleted = await services.retention.step()
        services.metrics.show_deleted(msgspec.structs.asdict(deleted))
        while waited < services.settings.keep.every and not services.disk.full:
            await services.clock.sleep(DISK_EVERY)
            waited += DISK_EVERY

    async def _notices(self) -> None:
        while await self._services.notifier.step():
            pass

    async def _jobs(self) -> None:
        services = self._services
        await services.jobs.supervisor.step()
        await services.signals.runs.claims.wait(services.settings.jobs.keep_every)

    async def _deliveries(self) -> None:
        deliverer = self._services.jobs.deliverer
        await deliverer.step()
        await deliverer.wake_up.wait(self._services.settings.jobs.keep_every)

    async def _fire(self) -> None:
        await self._services.jobs.firing.step()

    async def _listen(self) -> None:
        services = self._services
        async for channel, payload in services.bus.signals.listen(CHANNEL, WORK, RUNS, ERRANDS):
            if channel == WORK:
                services.signals.work.notify()
                continue
            if channel == ERRANDS:
                services.signals.dispatcher.hear()
                continue
            if channel == RUNS:
                await services.control.hear(payload)
                continue
            try:
                message = _addressed.decode(payload)
            except msgspec.DecodeError as error:
                log.warning("ignoring a command on the bus that cannot be decoded: %s", error)
                continue
            await self._look_at(message)
            await services.hub.hear(message)

    async def _look_at(self, message: Addressed) -> None:
        """Refresh the roster for a command of another center. Once the agent gets the command, it
        calls here: a draining agent must get no work because of an outdated roster."""
        services, command = self._services, message.command
        if services.hub.has(message.agent) and (command.order or command.name == "wake"):
            with contextlib.suppress(SkepError):
                await services.roster.look(message.agent)

    async def _announce(self) -> None:
        """Send one signal for all work of a moment: agents also wait at other centers."""
        if await self._services.signals.announce.wait(60.0):
            await self._services.bus.signals.publish(WORK, b"")
            await self._services.clock.sleep(ANNOUNCE_EVERY)

    async def _pass_on(self) -> None:
        """Send one wake-up for all tasks of a moment to the center that dispatches."""
        services = self._services
        if (
            await services.signals.dispatcher.elsewhere.wait(60.0)
            and not services.dispatcher.in_turn
        ):
            await services.bus.signals.publish(ERRANDS, b"")
            await services.clock.sleep(ANNOUNCE_EVERY)
