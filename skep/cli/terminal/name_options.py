"""Checks that the run or job in `--run` and `--job` exists.

A filter without matches looks like success ("no dead requests"), so an unknown name is an
error. It only reads; it is imported when such an option is given.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from skep.cli.terminal.latest_run import latest_run
from skep.cli.terminal.output import say
from skep.errors import UnknownJob, UnknownRun

if TYPE_CHECKING:
    from skep.embed.center_address import CenterAddress
    from skep.wire.client import CenterClient


async def checked(reach: CenterAddress, named: dict[str, str]) -> dict[str, str]:
    """Return the full names; raises UnknownRun or UnknownJob."""
    async with reach.client() as client:
        return {kind: await _CHECKS[kind](client, name) for kind, name in named.items()}


async def _run(client: CenterClient, name: str) -> str:
    """The id of the run, or of the latest run of the job with that name."""
    try:
        await client.api.runs.show(name)
    except UnknownRun:
        found = await latest_run(client, name)
        if not found:
            raise UnknownRun(no_run(name)) from None
        say(f"{found} is the latest run of {name}")
        return found
    return name


async def _job(client: CenterClient, name: str) -> str:
    """The name of a stored job, or of a job that a run refers to."""
    try:
        await client.api.jobs.show(name)
    except UnknownJob:
        if not await latest_run(client, name):
            raise
    return name


def no_run(name: Any) -> str:
    """The error for a name that matches neither a run nor a job."""
    return f"there is no run {name!r}, and no job {name!r} with a run; `skep runs` lists runs"


_CHECKS = {"run": _run, "job": _job}
