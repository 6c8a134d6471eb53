"""Chooses how an instance is started: a package as a process, an image as a container.

Runs on the agent's event loop. Kinds that this agent does not run are refused with a reason.
"""

from __future__ import annotations

import asyncio

from skep.agent.apps.container import Containers
from skep.agent.apps.instance_record import InstanceRecord, InstanceRecords
from skep.agent.apps.packages import Packages
from skep.agent.apps.process import Processes
from skep.agent.apps.runner_contract import CannotRun, Running, Start
from skep.model.jobs.app import AppSpec


class Starter:
    """`ready` first, then `start`; `release` when it has ended. A kind that is not offered is
    replaced by the reason."""

    def __init__(
        self,
        agent: str,
        records: InstanceRecords,
        packages: Packages,
        processes: Processes | str,
        containers: Containers | str,
    ) -> None:
        self._agent = agent
        self._records = records
        self._packages = packages
        self._processes = processes
        self._containers = containers

    async def ready(self, spec: AppSpec, record: InstanceRecord) -> Start:
        """Fetch its package or image. Raises CannotRun and NotNow."""
        folder = await asyncio.to_thread(self._records.folder, record)
        start = (spec, record.run, record.no, record.token, self._agent, folder)
        if spec.image:
            if isinstance(self._containers, str):
                raise CannotRun(f"this agent does not run images: {self._containers}")
            await self._containers.have(spec.image)
            return Start(*start)
        if isinstance(self._processes, str):
            raise CannotRun(f"this agent does not run applications: {self._processes}")
        if not spec.package:
            raise CannotRun("the application has neither a package nor an image")
        unpacked = await self._packages.take(spec)
        return Start(*start, unpacked.folder, unpacked.paths)

    def release(self, spec: AppSpec) -> None:
        """After `ready`: it no longer needs its package."""
        if not spec.image:
            self._packages.give_back(spec)

    async def start(self, start: Start) -> Running:
        """Raises CannotRun and NotNow."""
        if start.spec.image:
            assert not isinstance(self._containers, str)  # noqa: S101 - `ready` has looked
            return await self._containers.start(start)
        assert not isinstance(self._processes, str)  # noqa: S101 - `ready` has looked
        return await self._processes.start(start)
