"""The background loops of a center: dispatch, sweep, reconcile, listen.

Each loop survives an unavailable store or bus: it logs the error once, waits, and continues.
A loop must never end except by cancellation.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable
from functools import partial

import msgspec

from skep.center.agent_commands import CHANNEL, WORK, Addressed
from skep.center.dispatcher_wake_up import CHANNEL as DISPATCHER
from skep.center.services import Services
from skep.errors import SkepError, Unavailable
from skep.jobs.runs.run_control import CHANNEL as RUNS
from skep.lanes.dispatch import dispatch_in_time
from skep.monitoring.monitor import EVERY as MONITORING_EVERY

log = logging.getLogger(__name__)

#: Seconds between two dispatch rounds without a wake-up, for requests that become due.
DISPATCH_EVERY = 0.5
PAUSE_AFTER_ERROR = 0.5
HOUSEKEEPING_EVERY = 600.0
ANNOUNCE_EVERY = 0.05
#: Seconds for which used and revoked one-time tokens, and tokens of runs, are kept.
TOKENS_KEPT = 90 * 86400.0
#: Seconds between two writes of the last uses of tokens and sessions.
LAST_USES_EVERY = 30.0
#: Seconds between two checks whether sums of refused calls are due.
AUDIT_EVERY = 5.0
#: Seconds between two checks for timed-out drivers; they send several heartbeats in it.
DRIVERS_EVERY = 60.0
DISK_EVERY = 1.0
#: Seconds after which a secret that another center stored is known here.
SECRETS_EVERY = 5.0
#: Seconds between two look-ups of runs that agents remember; an agent forgets an ended run
#: after two heartbeats plus this time.
ENDED_EVERY = 1.0
NOTICES_EVERY = 1.0
#: Seconds for which notices are listed after they were sent.
NOTICES_KEPT = 30 * 86_400.0
#: Seconds for which ended operations are kept, and how many are deleted in one step.
OPERATIONS_KEPT, OPERATIONS_STEP = 90 * 86_400.0, 1000
OPERATION_FILES_KEPT = 7 * 86_400.0
#: Seconds that a line of this center waits for others, between two checks for pieces to merge, and
#: between two checks of the budgets of stored lines.
LOG_LINES_EVERY = 0.3
LOG_MERGING_EVERY = 5.0
LOG_BUDGETS_EVERY = 60.0
#: Seconds between two checks for output of processes that have ended.
LOG_FILES_EVERY = 5.0
#: Seconds between two checks for lines to export.
LOG_EXPORT_EVERY = 1.0
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
            ("monitoring", self._monitoring),
            ("drivers", self._drivers),
            ("roster", self._every(settings.center.roster_every, self._roster)),
            ("housekeeping", self._every(HOUSEKEEPING_EVERY, self._housekeeping)),
            ("jobs", self._jobs),
            ("deliveries", self._deliveries),
            ("operations", self._operations),
            ("schedules", self._every(settings.jobs.schedule_every, self._fire)),
            ("disk", self._every(DISK_EVERY, self._services.disk.look)),
            ("last uses", self._last_uses),
            ("audit", self._every(AUDIT_EVERY, self._services.people.audit.flush)),
            ("secrets", self._every(SECRETS_EVERY, self._services.people.secrets.look)),
            ("retention", self._retention),
            ("notices", self._every(NOTICES_EVERY, self._notices)),
            ("log lines", self._every(LOG_LINES_EVERY, self._log_lines)),
            ("log files", self._every(LOG_FILES_EVERY, self._services.logs.feeds.step)),
            ("log merging", self._every(LOG_MERGING_EVERY, self._log_merging)),
            ("log budgets", self._log_budgets),
            ("log export", partial(self._log_export, "export")),
            ("log forwarding", partial(self._log_export, "forward")),
            ("listen", self._listen),
            ("announce", self._announce),
            ("dispatcher wake-ups", self._pass_on),
        )
        self._tasks = [asyncio.create_task(self._keep(name, step)) for name, step in steps]

    async def stop(self) -> None:
        self._over = True
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _keep(self, name: str, step: Callable[[], Awaitable[None]]) -> None:
        waiting_for = ""
        # Even if a step swallows its cancellation, no further step starts.
        while not self._over:
            try:
                await step()
                waiting_for = self._recovered(name, waiting_for)
            except Unavailable as error:
                waiting_for = self._log_once(name, waiting_for, error)
                self._services.roster.deaf()
                await self._services.clock.sleep(PAUSE_AFTER_ERROR)
            except SkepError as error:
                waiting_for = self._log_once(name, waiting_for, error)
                await self._services.clock.sleep(PAUSE_AFTER_ERROR)
            except Exception:
                log.exception("unexpected error in loop %s; continuing", name)
                await self._services.clock.sleep(PAUSE_AFTER_ERROR)

    def _log_once(self, name: str, waiting_for: str, error: SkepError) -> str:
        if waiting_for != error.code:
            log.warning("loop %s is waiting: %s", name, error.detail)
        return error.code

    def _recovered(self, name: str, waiting_for: str) -> str:
        if waiting_for:
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

    async def _monitoring(self) -> None:
        """Pauses first: a center that starts, or lives for one run, has other work."""
        await self._services.clock.sleep(MONITORING_EVERY)
        await self._services.monitoring.monitor.step()

    async def _roster(self) -> None:
        await self._services.roster.refresh()

    async def _housekeeping(self) -> None:
        services = self._services
        oldest = services.clock.now() - services.settings.center.vitals_kept
        await services.store.agents.forget_vitals(oldest)
        await services.store.tokens.forget(services.clock.now() - TOKENS_KEPT)
        await services.auth.sessions.delete_ended()
        await services.people.audit.delete_old()
        await services.store.figures.forget_rates(services.clock.now())
        await services.dispatcher.log.forget()
        await services.store.notices.forget_told(services.clock.now() - NOTICES_KEPT)
        oldest = services.clock.now() - OPERATIONS_KEPT
        await services.store.operations.forget(oldest, OPERATIONS_STEP)
        oldest = services.clock.now() - OPERATION_FILES_KEPT
        await services.store.operations.forget_files(oldest, OPERATIONS_STEP)
        await services.jobs.scheduler.heal()
        await services.jobs.scheduler.forget(services.settings.jobs.fires_kept)
        await services.jobs.feeder.forget()

    async def _last_uses(self) -> None:
        """Pauses first: a center that starts has nothing to write."""
        await self._services.clock.sleep(LAST_USES_EVERY)
        await self._services.auth.write_uses()

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

    async def _log_lines(self) -> None:
        await self._services.logs.recorder.step()

    async def _log_merging(self) -> None:
        while await self._services.logs.merger.step():
            pass

    async def _log_budgets(self) -> None:
        services = self._services
        await services.clock.sleep(LOG_BUDGETS_EVERY)
        await services.logs.keep_budget(services.metrics)

    async def _log_export(self, name: str) -> None:
        """Begins again after an error, from the position that was saved last."""
        services, exporter = self._services, self._services.logs.exporters.get(name)
        if exporter is None:
            await services.clock.sleep(LOG_BUDGETS_EVERY)
            return
        await exporter.open()
        while True:
            try:
                written = await exporter.step()
            except Unavailable as error:
                # Not one that says that the store is away: agents must be judged meanwhile.
                raise SkepError(error.detail) from error
            if not written:
                await services.clock.sleep(LOG_EXPORT_EVERY)

    async def _jobs(self) -> None:
        services = self._services
        await services.jobs.supervisor.step()
        await services.signals.runs.claims.wait(services.settings.jobs.keep_every)

    async def _deliveries(self) -> None:
        deliverer = self._services.jobs.deliverer
        await deliverer.step()
        await deliverer.wake_up.wait(self._services.settings.jobs.keep_every)

    async def _operations(self) -> None:
        worker = self._services.operations.worker
        await worker.wake_up.wait(await worker.step())

    async def _fire(self) -> None:
        await self._services.jobs.firing.step()

    async def _listen(self) -> None:
        services = self._services
        async for channel, payload in services.bus.signals.listen(CHANNEL, WORK, RUNS, DISPATCHER):
            if channel == WORK:
                services.signals.work.notify()
                continue
            if channel == DISPATCHER:
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
            await services.bus.signals.publish(DISPATCHER, b"")
            await services.clock.sleep(ANNOUNCE_EVERY)
