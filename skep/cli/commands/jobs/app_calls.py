"""What `skep app` asks of a center: which run is meant, and its instances. Imported late.

Run by the command line. A name is a run first, then a job; it must never guess further.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from skep.cli.commands.jobs.job_calls import all_jobs, job_path
from skep.cli.terminal.center_options import run_path
from skep.embed.center_address import CenterAddress
from skep.errors import InvalidInput, NotFound, UnknownJob, UnknownRun

if TYPE_CHECKING:
    from skep.wire.client import CenterClient


#: The state of a run that is listed with its job and is no run: it could not start, or was
#: forgotten.
NOT_THERE = "not there"


async def run_named(client: CenterClient, run_or_job: str) -> dict[str, Any]:
    """The run of that name, or the newest run of the job of that name. Raises NotFound."""
    try:
        view: dict[str, Any] = await client.call("GET", run_path(run_or_job), None, dict)
    except (UnknownRun, InvalidInput):
        return await _listed_run(client, await _newest(client, run_or_job))
    found: dict[str, Any] = view["run"]
    return found


async def _newest(client: CenterClient, job: str) -> dict[str, Any]:
    try:
        runs = (await client.call("GET", job_path(job), None, dict))["runs"]
    except (UnknownJob, InvalidInput):
        raise NotFound(
            f"there is no run and no job {job!r}; `skep app ls` lists applications"
        ) from None
    if not runs:
        raise NotFound(f"job {job} was never run; start it with `skep job run {job}`")
    newest: dict[str, Any] = runs[0]
    return newest


async def _listed_run(client: CenterClient, listed: dict[str, Any]) -> dict[str, Any]:
    """One of a job's runs, and why it is none when it never began."""
    try:
        view = await client.call("GET", run_path(listed["run"]), None, dict)
    except UnknownRun:
        about = {"id": listed["run"], "job": listed["job"]}
        return {**about, "state": NOT_THERE, "reason": listed.get("outcome", "")}
    found: dict[str, Any] = view["run"]
    return found


async def instances_of(
    client: CenterClient, run_or_job: str, no: int | None = None
) -> dict[str, Any]:
    """A run with its instances, or one of them. Raises NotFound when there are none."""
    found = await _instances(client, await run_named(client, run_or_job))
    if no is not None:
        found["items"] = [line for line in found["items"] if line["instance"]["no"] == no]
    if found["state"] == NOT_THERE:
        raise NotFound(f"run {found['run']} is {NOT_THERE}: {found['reason'] or 'forgotten'}")
    if not found["items"]:
        which = "instances" if no is None else f"instance {no}"
        raise NotFound(f"run {found['run']} has no {which}; see `skep why {found['run']}`")
    return found


async def _instances(client: CenterClient, run: dict[str, Any]) -> dict[str, Any]:
    about = {"run": run["id"], "job": run["job"], "state": run["state"], "reason": run["reason"]}
    if run["state"] == NOT_THERE:
        return {**about, "items": []}
    answer = await client.call("GET", run_path(run["id"], "instances"), None, dict)
    return {**about, "items": answer["items"]}


async def found_instances(reach: CenterAddress, run_or_job: str) -> list[dict[str, Any]]:
    """Of one run, which may have none yet."""
    async with reach.client() as client:
        return [await _instances(client, await run_named(client, run_or_job))]


async def every_app(reach: CenterAddress) -> list[dict[str, Any]]:
    """The newest run of every job with an application."""
    found: list[dict[str, Any]] = []
    async with reach.client() as client:
        for kept in await all_jobs(client, deleted=False):
            if kept["job"].get("app") is None:
                continue
            name = kept["job"]["name"]
            runs = (await client.call("GET", job_path(name), None, dict))["runs"]
            if runs:
                found.append(await _instances(client, await _listed_run(client, runs[0])))
    return found
