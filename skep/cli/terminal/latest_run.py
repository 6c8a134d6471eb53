"""Finds the latest run of a job, for commands that accept the name of a job in place of a run.

A run of that name has precedence; a job is searched only if there is no such run.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from skep.errors import SkepError

if TYPE_CHECKING:
    from skep.embed.center_address import CenterAddress
    from skep.wire.client import CenterClient

#: Number of runs to search, newest first.
LOOKED_AT = 1000


async def latest_run(client: CenterClient, job: str) -> str:
    """The latest run of a job or spider; "" if it has none among the newest runs."""
    from skep.wire.api.runs import RunPage

    listed = await client.api.runs.list(RunPage(LOOKED_AT))
    return next((run.id for run in listed.items if run.job == job), "")


async def latest_run_at(reach: CenterAddress, job: str) -> str:
    """Like `latest_run`; "" also if the call fails."""
    try:
        async with reach.client() as client:
            return await latest_run(client, job)
    except SkepError:
        return ""
