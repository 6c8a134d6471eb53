"""Says what a run waits for while nothing moves. Runs beside a session.

A center that does not answer the question adds no note, and the run goes on as it is.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from skep.errors import SkepError
from skep.runtime.clock import Clock
from skep.spiders.driving.stats import Stats
from skep.wire.client.api import CenterApi

#: Seconds without any progress before a note says what the run waits for.
STILL_SECONDS = 3.0
LOOK_EVERY = 0.5
_NUMBER = re.compile(r"[0-9.]+")


async def note_waits(
    api: CenterApi, run: str, stats: Stats, note: Callable[[str], None], clock: Clock
) -> None:
    """Calls `note` once for each reason. Runs until it is cancelled; numbers such as remaining
    seconds do not make a reason another one."""
    seen, since, told = _progress(stats), clock.monotonic(), ""
    while True:
        await clock.sleep(LOOK_EVERY)
        now = clock.monotonic()
        if _progress(stats) != seen:
            seen, since = _progress(stats), now
        elif now - since >= STILL_SECONDS:
            since = now
            reason = await _reason(api, run)
            if reason and _NUMBER.sub("", reason) != told:
                told = _NUMBER.sub("", reason)
                note(reason)


def _progress(stats: Stats) -> tuple[int, int, int]:
    return stats.pages, stats.failed, stats.items


async def _reason(api: CenterApi, run: str) -> str:
    """The first reason, in one line; "" for a run that does not wait."""
    try:
        why = await api.why.run(run)
    except SkepError:
        return ""
    return " ".join(why.reasons[0].text.split()) if why.waiting and why.reasons else ""
