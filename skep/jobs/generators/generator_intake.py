"""Hands requests of generators to the intake and waits while they cannot be stored. Centers only.

A store or a disk that is unavailable stops a generator and never fails it: the same requests are
offered again until they are stored or refused.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TypeVar

from skep.errors import Unavailable
from skep.jobs.intake import Intake
from skep.jobs.request_sources import RequestSource
from skep.model.request import Offered
from skep.runtime.clock import Clock
from skep.runtime.log_repeats import Repeats, repeated
from skep.runtime.retry import retry

log = logging.getLogger(__name__)

T = TypeVar("T")
#: Seconds between two attempts.
AGAIN_SECONDS = 0.5


async def accept_when_available(
    intake: Intake, clock: Clock, source: RequestSource[T], run: str, offered: Sequence[Offered]
) -> T:
    """As `Intake.accept_from`, without Unavailable."""

    repeats = Repeats(clock)

    def pause(error: Unavailable, _failures: int) -> float:
        if times := repeats.due():
            often = repeated(times)
            log.warning("run %s: its generator waits: %s%s", run, error.detail, often)
        return AGAIN_SECONDS

    accept = lambda: intake.accept_from(source, run, offered)  # noqa: E731 - called again
    return await retry(accept, Unavailable, pause, clock.sleep)
