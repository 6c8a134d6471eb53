"""Prints why requests of a run failed.

Used by commands that wait. If the center does not answer, it prints nothing: the result of the
command does not change.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from skep.cli.terminal.output import say
from skep.errors import SkepError

if TYPE_CHECKING:
    from skep.model.failures import FailureGroup
    from skep.wire.client import CenterClient

GROUPS = 3
TEXT = 200


async def say_failures(client: CenterClient, run: str, dead: int) -> None:
    """Print the largest groups of dead requests of a run; nothing if none is dead."""
    for line in await failure_lines(client, run) if dead else []:
        say(line)


async def failure_lines(client: CenterClient, run: str) -> list[str]:
    """`2 x network at example.org: could not resolve host`, and the command for the rest."""
    from skep.wire.api.failures import WhichFailures
    from skep.wire.api.route import CALL_SECONDS

    api = client.api_within(CALL_SECONDS)
    try:
        answer = await api.failures.list(WhichFailures(run=run, limit=GROUPS))
    except SkepError:
        return []
    groups = answer.items
    rest = answer.requests - sum(group.requests for group in groups)
    more = [f"and {rest:,} in smaller groups: `skep failures ls --run {run}`"] if rest > 0 else []
    return [*map(group_line, groups), *more]


def group_line(group: FailureGroup) -> str:
    kind = f"{group.failure} {group.status or ''}".rstrip()
    host = f" at {group.host}" if group.host else ""
    text = " ".join(group.text.split())[:TEXT]
    return f"{group.requests:,} x {kind}{host}" + (f": {text}" if text else "")
