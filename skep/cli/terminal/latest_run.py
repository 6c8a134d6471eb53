"""The latest run of a job, for commands that were given the job's name in place of a run's.

A run of that name comes first; the job is looked for only when a center knows no such run.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from skep.errors import SkepError

if TYPE_CHECKING:
    from skep.embed.center_address import CenterAddress
    from skep.wire.client import CenterClient

#: Runs that are looked at, newest first.
LOOKED_AT = 1000


async def latest_run(client: CenterClient, job: str) -> str:
    """Of a job or of a spider of that name; "" when it has none among the newest runs."""
    from skep.wire.api.runs import RunPage

    listed = await client.api.runs.list(RunPage(LOOKED_AT))
    return next((run.id for run in listed.items if run.job == job), "")


async def latest_run_at(reach: CenterAddress, job: str) -> str:
    """As `latest_run`; "" also when the center does not answer this."""
    try:
        async with reach.client() as client:
            return await latest_run(client, job)
    except SkepError:
        return ""
