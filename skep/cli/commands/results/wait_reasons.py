"""Why requests of a run failed, and what a run waits for, as lines for people.

Used by commands that wait. A center that does not answer these questions adds no line: the
result of the command stays as it is.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING

from skep.cli.commands.results.why import first_reason
from skep.cli.terminal.output import say
from skep.errors import SkepError

if TYPE_CHECKING:
    from skep.model.failures import FailureGroup
    from skep.runtime.clock import Clock
    from skep.spiders.driving.stats import Stats
    from skep.wire.client import CenterClient

GROUPS = 3
TEXT = 200
#: Seconds without any progress before a note says what the run waits for.
STILL_SECONDS = 3.0
LOOK_EVERY = 0.5
_NUMBER = re.compile(r"[0-9.]+")


async def say_failures(client: CenterClient, run: str, dead: int) -> None:
    """The largest groups of dead requests of a run; nothing when none is dead."""
    for line in await failure_lines(client, run) if dead else []:
        say(line)


async def failure_lines(client: CenterClient, run: str) -> list[str]:
    """`2 x network at example.org: could not resolve host`, and where the rest is listed."""
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


async def note_waits(
    client: CenterClient, run: str, stats: Stats, note: Callable[[str], None], clock: Clock
) -> None:
    """Says what a run waits for while nothing moves, once for each reason. Runs until it is
    cancelled; numbers such as remaining seconds do not make a reason another one."""
    seen, since, told = _progress(stats), clock.monotonic(), ""
    while True:
        await clock.sleep(LOOK_EVERY)
        now = clock.monotonic()
        if _progress(stats) != seen:
            seen, since = _progress(stats), now
        elif now - since >= STILL_SECONDS:
            since = now
            reason = await _reason(client, run)
            if reason and _NUMBER.sub("", reason) != told:
                told = _NUMBER.sub("", reason)
                note(f"waiting: {reason}")


def _progress(stats: Stats) -> tuple[int, int, int]:
    return stats.pages, stats.failed, stats.items


async def _reason(client: CenterClient, run: str) -> str:
    try:
        return await first_reason(client, run)
    except SkepError:
        return ""
