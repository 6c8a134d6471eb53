"""Options that name a run or a job (`--run`, `--job`) are names of something that is there.

A filter that fits nothing looks like good news ("no dead requests"); a name that the center
does not know is an error instead. Only asks; imported when such an option was given.
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
    """The names as the center knows them; raises UnknownRun or UnknownJob."""
    async with reach.client() as client:
        return {kind: await _CHECKS[kind](client, name) for kind, name in named.items()}


async def _run(client: CenterClient, name: str) -> str:
    """A run; a job's name stands for its latest run."""
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
    """A job that is kept, or one that runs remember."""
    try:
        await client.api.jobs.show(name)
    except UnknownJob:
        if not await latest_run(client, name):
            raise
    return name


def no_run(name: Any) -> str:
    """What to say of a name that fits nothing."""
    return f"there is no run {name!r}, and no job of that name with a run; `skep runs` lists runs"


_CHECKS = {"run": _run, "job": _job}
