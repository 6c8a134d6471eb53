"""The calls of `skep app` to a center: find the run, then its instances.

Imported when the command runs. A name is first a run, then a job; nothing else is guessed.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from skep.cli.commands.jobs.job_calls import all_jobs
from skep.cli.terminal.center_calls import connected
from skep.embed.center_address import CenterAddress
from skep.errors import InvalidInput, NotFound, UnknownJob, UnknownRun

if TYPE_CHECKING:
    from skep.model.jobs.job import JobRun
    from skep.model.run import Run
    from skep.wire.api.apps import InstanceLine
    from skep.wire.client import CenterClient

#: The state of a run that its job lists but that does not exist: it could not start, or was
#: deleted.
NOT_THERE = "not there"


@dataclass(frozen=True, slots=True)
class AppRun:
    """A run of an application with its instances; a run that never started has none."""

    run: str
    job: str
    state: str
    reason: str
    items: tuple[InstanceLine, ...] = ()

    @classmethod
    def of(cls, run: Run) -> AppRun:
        return cls(run.id, run.job, run.state, run.reason)

    def plain(self) -> dict[str, Any]:
        """As plain data, for JSON."""
        return {name: getattr(self, name) for name in self.__slots__}


async def run_named(client: CenterClient, run_or_job: str) -> AppRun:
    """The run of that name, or the newest run of the job of that name. Raises NotFound."""
    try:
        view = await client.api.runs.show(run_or_job)
    except (UnknownRun, InvalidInput):
        return await _listed_run(client, await _newest(client, run_or_job))
    return AppRun.of(view.run)


async def _newest(client: CenterClient, job: str) -> JobRun:
    try:
        runs = (await client.api.jobs.show(job)).runs
    except (UnknownJob, InvalidInput):
        raise NotFound(
            f"there is no run and no job {job!r}; `skep app ls` lists applications"
        ) from None
    if not runs:
        raise NotFound(f"job {job} was never run; start it with `skep job run {job}`")
    return runs[0]


async def _listed_run(client: CenterClient, listed: JobRun) -> AppRun:
    """A run of a job, or the reason why it never started."""
    try:
        return AppRun.of((await client.api.runs.show(listed.run)).run)
    except UnknownRun:
        return AppRun(listed.run, listed.job, NOT_THERE, listed.outcome)


async def instances_of(client: CenterClient, run_or_job: str, no: int | None = None) -> AppRun:
    """A run with its instances, or with one of them. Raises NotFound if there are none."""
    found = await _instances(client, await run_named(client, run_or_job))
    if no is not None:
        found = replace(found, items=tuple(one for one in found.items if one.instance.no == no))
    if found.state == NOT_THERE:
        raise NotFound(f"run {found.run} is {NOT_THERE}: {found.reason or 'forgotten'}")
    if not found.items:
        which = "instances" if no is None else f"instance {no}"
        raise NotFound(f"run {found.run} has no {which}; see `skep why {found.run}`")
    return found


async def _instances(client: CenterClient, run: AppRun) -> AppRun:
    if run.state == NOT_THERE:
        return run
    answer = await client.api.apps.instances(run.run)
    return replace(run, items=tuple(answer.items))


async def found_instances(reach: CenterAddress, run_or_job: str) -> list[AppRun]:
    """A run with its instances; it may have none yet."""
    async with connected(reach) as client:
        return [await _instances(client, await run_named(client, run_or_job))]


async def every_app(reach: CenterAddress) -> list[AppRun]:
    """The newest run of every job with an application."""
    found: list[AppRun] = []
    async with connected(reach) as client:
        for kept in await all_jobs(client, deleted=False):
            if kept.job.app is None:
                continue
            runs = (await client.api.jobs.show(kept.job.name)).runs
            if runs:
                found.append(await _instances(client, await _listed_run(client, runs[0])))
    return found
