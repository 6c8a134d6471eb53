"""Supervises runs of applications: their packages, instances and agents.

Run by the center that leases the run, as a part of the run supervisor. It repeatedly writes the
desired state and reads the actual one; agents compare the two (level-triggered), so a center
that dies at any point leaves nothing half done. It never talks to a process of an instance,
and never places an instance twice without a higher token.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress

from skep.errors import Conflict, InvalidInput, LostLease, NotEnoughAgents, SkepError
from skep.jobs.apps.agent_choice import NO_AGENT, AgentChoice
from skep.jobs.apps.packing import Packer
from skep.jobs.context import JobContext
from skep.model.jobs.app import AppPart, AppSpec, Instance, InstanceState, desired_state_for
from skep.model.jobs.job import JobRun
from skep.model.run import Run
from skep.model.states import ENDED_RUN_STATES, RunState
from skep.store.ports.apps import Package
from skep.wire.messages import Command

log = logging.getLogger(__name__)

ALERT = "job_failed"
#: Seconds after which the command is repeated to an agent that has not reached the desired state.
TELL_AGAIN = 2.0
#: Seconds that the instances of an ended run have, in addition to their own time to stop.
END_SECONDS = 30.0
LAST_BYTES = 4096
LAST_LINE = 300
APPS = "apps"

Look = Callable[[], Awaitable[Run]]
Rest = Callable[[float], Awaitable[object]]
Tell = Callable[[str, Command], Awaitable[None]]


class AppSupervisor:
    """One center's part in running applications."""

    def __init__(
        self, context: JobContext, places: AgentChoice, packer: Packer, tell: Tell
    ) -> None:
        self._settings = context.settings
        self._store = context.store
        self._intake = context.intake
        self._places = places
        self._packer = packer
        self._tell = tell
        self._clock = context.clock

    async def follow(self, held: JobRun, part: AppPart, look: Look, rest: Rest) -> tuple[Run, str]:
        """Supervise until the run is paused or has ended; return the run and a remark about it.
        `rest` pauses, and returns early when something changed."""
        told: dict[str, float] = {}
        until: float | None = None
        while True:
            run = await look()
            if run.state is RunState.RUNNING:
                ended = await self._step(held, part, run, told)
                if ended is not None:
                    return ended
            elif run.state not in ENDED_RUN_STATES:
                await self._urge(part, run, await self._store.apps.of(run.id), {})
                return run, ""
            else:
                until = until or self._clock.monotonic() + part.stop_seconds + END_SECONDS
                if await self._wound_up(held, part, run, told) or self._clock.monotonic() > until:
                    return run, _count(await self._store.apps.of(run.id))
            await rest(self._settings.keep_every)

    # -- an active run

    async def _step(
        self, held: JobRun, part: AppPart, run: Run, told: dict[str, float]
    ) -> tuple[Run, str] | None:
        instances = await self._store.apps.of(run.id)
        if not instances:
            try:
                instances = await self._begin(held, run, part)
            except (InvalidInput, NotEnoughAgents) as error:
                return await self._fail(held, part, run, error.detail)
        for place, one in enumerate(instances):
            # In place: the next instance must see where this one was placed.
            instances[place] = await self._live(held, part, run, one, instances)
        if broken := next((one for one in instances if _failed(one, part, run)), None):
            return await self._fail(held, part, run, await self._why(broken))
        if all(one.ended for one in instances):
            return await self._over(held, run, instances)
        await self._urge(part, run, instances, told)
        return None

    async def _begin(self, held: JobRun, run: Run, part: AppPart) -> list[Instance]:
        """Store the package first, so that a placed instance can be started."""
        package = await self._packer.pack(part.package) if part.package else None
        agents = await self._places.chosen(run)
        now = self._clock.now()
        spec = spec_of(part, package)
        secrets, lease = part.secrets, held.proof
        return await self._store.apps.create(run.id, spec, secrets, agents, now, lease)

    async def _live(
        self, held: JobRun, part: AppPart, run: Run, one: Instance, others: Sequence[Instance]
    ) -> Instance:
        """Do what the instance needs now; return its new state."""
        if one.state is InstanceState.DONE or one.halted or _failed(one, part, run):
            return one
        if one.ended:
            # It stopped, or failed before the run was continued, and should run.
            with suppress(Conflict):
                now = self._clock.now()
                one = await self._store.apps.restart(run.id, one.no, now, held.proof)
        if one.agent and not self._places.lost(one, part.lost_seconds):
            return one
        return await self._placed(held, part, run, one, others)

    async def _placed(
        self, held: JobRun, part: AppPart, run: Run, one: Instance, others: Sequence[Instance]
    ) -> Instance:
        now = self._clock.now()
        if one.agent and part.restart == "never":
            reason = f"its agent {one.agent} was lost, and its restart policy is never"
            await self._store.apps.end(one, InstanceState.FAILED, reason, now, held.proof)
        else:
            busy = {i.agent for i in others if i.no != one.no and not i.ended}
            agent = await self._places.another(run, one, busy)
            lost = f"its agent {one.agent} was lost; " if one.agent else ""
            reason = f"{lost}{'placed again' if agent else await self._places.why_none(run, busy)}"
            if agent or one.agent or NO_AGENT not in one.reason:
                await self._store.apps.place(one, agent, reason, now, held.proof)
                log.warning("instance %d of run %s: %s", one.no, run.id, reason)
        return (await self._store.apps.of(run.id))[one.no]

    # -- ends

    async def _over(self, held: JobRun, run: Run, instances: Sequence[Instance]) -> tuple[Run, str]:
        done = any(one.state is InstanceState.DONE for one in instances)
        to = RunState.FINISHED if done else RunState.CANCELLED
        said = "" if done else "every instance was stopped"
        return await self._intake.move(run.id, to, said, held.proof), _count(instances)

    async def _wound_up(
        self, held: JobRun, part: AppPart, run: Run, told: dict[str, float]
    ) -> bool:
        """Whether every instance of an ended run has stopped, as far as that can be known."""
        instances = await self._store.apps.of(run.id)
        live = [one for one in instances if not one.ended]
        for one in live:
            if not one.agent or self._places.gone(one.agent):
                reason = "its agent was gone when the run ended" if one.agent else ""
                now = self._clock.now()
                await self._store.apps.end(one, InstanceState.STOPPED, reason, now, held.proof)
        await self._urge(part, run, live, told)
        return not live

    async def _fail(self, held: JobRun, part: AppPart, run: Run, reason: str) -> tuple[Run, str]:
        try:
            moved = await self._intake.move(run.id, RunState.FAILED, reason, held.proof)
        except LostLease:
            raise
        except (Conflict, InvalidInput):  # it ended meanwhile
            return await self._store.runs.get(run.id), ""
        now = self._clock.now()
        await self._store.alerts.raise_(ALERT, held.job, f"run {run.id}: {reason}", now)
        await self._urge(part, moved, await self._store.apps.of(run.id), {})
        return moved, reason

    async def _why(self, one: Instance) -> str:
        """Which instance failed, where, how, and the last line of its log."""
        code = "" if one.exit_code is None else f" with exit code {one.exit_code}"
        because = f": {one.reason}" if one.reason else ""
        where = f" on agent {one.agent}" if one.agent else ""
        line = await self._last_line(one)
        said = f"; its last line: {line}" if line else ""
        return f"instance {one.no}{where} failed{code}{because}{said}"

    async def _last_line(self, one: Instance) -> str:
        part = await self._store.apps.read_log(one.run, one.no, -LAST_BYTES, LAST_BYTES)
        lines = [line for line in part.data.decode(errors="replace").splitlines() if line.strip()]
        last = lines[-1] if lines else ""
        return "".join(c if c.isprintable() else " " for c in last).strip()[:LAST_LINE]

    # -- agents

    async def _urge(
        self, part: AppPart, run: Run, instances: Sequence[Instance], told: dict[str, float]
    ) -> None:
        """Tell agents whose instances differ from the desired state to fetch it: at once when the
        difference is new, then at intervals."""
        now, unmet = self._clock.monotonic(), dict[str, str]()
        for one in instances:
            if one.agent and (wanted := self._unmet(part, run, one)):
                unmet[f"{one.no} {one.token} {wanted}"] = one.agent
        due = {what for what in unmet if now - told.get(what, -TELL_AGAIN) >= TELL_AGAIN}
        told.update(dict.fromkeys(due, now))
        for agent in sorted({unmet[what] for what in due}):
            with suppress(SkepError):  # it is sent again
                await self._tell(agent, Command(APPS))

    def _unmet(self, part: AppPart, run: Run, one: Instance) -> str:
        """The desired state that the instance has not reached; "" when it has."""
        wanted = desired_state_for(run.state, one.halted)
        if self._places.leaving(one.agent) and part.restart != "never":
            wanted = InstanceState.STOPPED
        starting = one.state is InstanceState.STARTING and wanted is InstanceState.RUNNING
        return "" if one.ended or one.state is wanted or starting else str(wanted)


def spec_of(part: AppPart, package: Package | None) -> AppSpec:
    """The specification for agents, without secrets, which are read when it is sent."""
    return AppSpec(
        command=part.command,
        package=package.digest if package else "",
        package_kind=package.kind if package else "",
        package_name=package.name if package else "",
        image=part.image,
        restart=part.restart,
        restarts=part.restarts,
        environment=part.environment,
        limits=part.limits,
        network=part.network,
        stop_seconds=part.stop_seconds,
        lost_seconds=part.lost_seconds,
    )


def _failed(one: Instance, part: AppPart, run: Run) -> bool:
    """Whether the instance failed since the run was started or continued; one that failed before
    is started again. One that stopped because its agent left has failed if it must not be
    started again."""
    stopped = one.state is InstanceState.STOPPED and not one.halted and part.restart == "never"
    return (one.state is InstanceState.FAILED or stopped) and one.changed_at >= run.changed_at


def _count(instances: Sequence[Instance]) -> str:
    states = [str(one.state) for one in instances]
    counts = [f"{states.count(state)} {state}" for state in InstanceState if state in states]
    return f"instances: {', '.join(counts)}" if counts else ""
