"""A simulated center with everything for runs: the real services, loops and handlers.

It can be frozen, thawed and killed. Spiders and agents call its API handlers in its own tasks,
with tokens that its real authentication checks. It shares store and bus with other centers.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Mapping
from pathlib import Path
from random import Random
from typing import Any

from skep.center.foundation import Foundation, OwnAddress
from skep.center.http.endpoint import Call, Endpoint
from skep.center.loops import Loops
from skep.center.services import Services, build
from skep.errors import SkepError
from skep.settings import Settings, load
from skep.testing.simulation.centers import MemoryArchive
from skep.testing.simulation.faults import Crash
from skep.testing.simulation.gates import (
    CenterBorder,
    GatedClock,
    NoAnswer,
    gated_bus,
    gated_store,
)
from skep.testing.simulation.run_spiders import SimSpawner
from skep.testing.simulation.virtual_loop import VirtualLoop

#: Seconds that a caller waits for an answer.
PATIENCE = 5.0


class RunCenter:
    """Call `start`. `kill` loses its memory."""

    def __init__(
        self,
        name: str,
        loop: VirtualLoop,
        rng: Random,
        settings: Settings,
        store: Any,
        bus: Any,
        outage: Any,
    ) -> None:
        self.name = name
        self._loop = loop
        self._rng = rng
        self._settings = settings
        self._store, self._bus = store, bus
        self._outage = outage
        self._archive = MemoryArchive()
        self.spawner = SimSpawner(self)
        self.services: Services | None = None
        self.repairs = 0
        self._tasks: set[asyncio.Task[Any]] = set()

    def start(self) -> None:
        self.gate = CenterBorder(self._rng, self._outage)
        clock = GatedClock(self._loop, self.gate)
        store, bus = gated_store(self._store, self.gate), gated_bus(self._bus, self.gate)
        Path(self._settings.data).mkdir(parents=True, exist_ok=True)
        address = OwnAddress(self.name)
        self.services = services = build(
            Foundation(
                self.name, self._settings, store, bus, self._archive, clock, self._rng, address
            )
        )
        services.jobs.supervisor._spawner = self.spawner  # type: ignore[assignment]  # noqa: SLF001
        loops = Loops(services)
        center, lanes = self._settings.center, self._settings.lanes
        every = loops._every  # noqa: SLF001 - the real loops, but for those that need files
        steps = {
            "dispatch": loops._dispatch,  # noqa: SLF001
            "sweep": every(center.sweep_every, loops._sweep),  # noqa: SLF001
            "reconcile": every(lanes.reconcile_every, loops._reconcile),  # noqa: SLF001
            "placement": every(center.sweep_every, loops._placement),  # noqa: SLF001
            "ended runs": every(1.0, services.ended_runs.look),
            "self-check": loops._self_check,  # noqa: SLF001
            "roster": every(center.roster_every, loops._roster),  # noqa: SLF001
            "jobs": loops._jobs,  # noqa: SLF001
            "deliveries": loops._deliveries,  # noqa: SLF001
        }
        for name, step in steps.items():
            self.spawn(loops._keep(name, step))  # noqa: SLF001

    def spawn(self, work: Any) -> asyncio.Task[Any]:
        """Start a task of this center, which ends with it; so do the tasks that it starts."""
        context = contextvars.copy_context()
        context.run(OWNER.set, self)
        return self._loop.create_task(work, context=context)

    def owns(self, task: asyncio.Task[Any]) -> None:
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def freeze(self) -> None:
        self.gate.freeze()

    def thaw(self) -> None:
        self.gate.thaw()

    def kill(self) -> None:
        """kill -9: it writes nothing more; its spiders end with it."""
        if self.services is None:
            return
        self.repairs += sum(self.services.repairs.done.values())
        self.services = None
        self.gate.dead = True
        self.gate.thaw()
        for task in tuple(self._tasks):
            task.cancel()
        self.spawner.end_all()

    @property
    def repaired(self) -> int:
        """Differences that this center has repaired, over all restarts."""
        now = sum(self.services.repairs.done.values()) if self.services else 0
        return self.repairs + now

    async def call(
        self,
        row: Endpoint,
        body: Any,
        *,
        path: Mapping[str, str] | None = None,
        token: str = "",
        headers: Mapping[str, str] | None = None,
    ) -> Any:
        """One call of the API. Raises the errors of the handler, and NoAnswer."""
        sent = {**(headers or {}), "authorization": f"Bearer {token}"}
        told = dict(path or {}), sent
        return await self.do(lambda services: self._answer(services, row, body, *told))

    async def _answer(
        self,
        services: Services,
        row: Endpoint,
        body: Any,
        path: dict[str, str],
        headers: Mapping[str, str],
    ) -> Any:
        driven = path.get("identity", "")
        who = await services.auth.identify(headers["authorization"], row.role, driven, "")
        return await row.handler(Call(services, who, path, body=body, headers=headers))

    async def do(self, work: Any) -> Any:
        """Run `work(services)` in a task of this center. Raises NoAnswer and SkepError."""
        if self.services is None:
            raise NoAnswer
        answer = self.spawn(work(self.services))
        done, _ = await asyncio.wait((answer,), timeout=PATIENCE)
        if not done:
            answer.add_done_callback(_read)
            raise NoAnswer
        if answer.cancelled() or isinstance(answer.exception(), Crash):
            raise NoAnswer
        return answer.result()


def _read(task: asyncio.Task[Any]) -> None:
    if not task.cancelled():
        task.exception()


#: The center of the current task; None for agents, spiders and the scenario.
OWNER: contextvars.ContextVar[RunCenter | None] = contextvars.ContextVar("OWNER", default=None)


def own_tasks(loop: VirtualLoop) -> None:
    """Assign every task to its center; crashes are not logged."""

    def factory(loop: Any, work: Any, **more: Any) -> asyncio.Task[Any]:
        task: asyncio.Task[Any] = asyncio.Task(work, loop=loop, **more)
        context = more.get("context")
        owner = context.get(OWNER) if context is not None else OWNER.get()
        if owner is not None:
            owner.owns(task)
        return task

    def quiet(loop: Any, context: dict[str, Any]) -> None:
        if not isinstance(context.get("exception"), Crash | SkepError):
            loop.default_exception_handler(context)

    loop.set_task_factory(factory)
    loop.set_exception_handler(quiet)


def settings_in(folder: Path) -> Settings:
    """Settings with leases of some seconds and small lanes."""
    flags = {
        "data": str(folder),
        "center.port": 0,
        "center.alive_after": 6.0,
        "center.sweep_every": 1.0,
        "center.roster_every": 3.0,
        "center.self_check_every": 4.0,
        "lanes.lease_seconds": 6.0,
        "lanes.reconcile_every": 2.0,
        "lanes.retry_first": 0.5,
        "lanes.lease_limit": 1000,
        "jobs.lease_seconds": 4.0,
        "jobs.keep_every": 0.5,
        "jobs.restart_first": 0.5,
        "jobs.restart_cap": 2.0,
        "jobs.end_seconds": 2.0,
        "jobs.deliver_wait": 5.0,
        "jobs.deliver_first": 0.5,
        "jobs.deliver_cap": 4.0,
        "logs.store": False,
    }
    return load(flags=flags)
