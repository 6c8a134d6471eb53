"""The progress of one generator in one run: state, figures, last error. Pure data.

A generator that is restarted, after a crash or a pause, counts from zero: only `taken` is the
sum over all its starts, because taken requests stay taken.
"""

from __future__ import annotations

import re
from enum import StrEnum

import msgspec

#: Prefix of the fire keys of runs that a generator's own cron line started.
KEY_PREFIX = "generator "
#: Separates the names of a job and its generator, in schedules and fires.
PART_MARK = "#"
PART_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,15}")
#: The number of the job's own `requests` among its generators.
REQUESTS = -1


class GenerationState(StrEnum):
    """The last two are final; a failed one restarts when its run is resumed."""

    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"


class Counts(msgspec.Struct, frozen=True):
    """What a generator has produced since its last start."""

    yielded: int = 0
    #: Not valid, and left out.
    bad: int = 0
    seconds: float = 0.0
    #: The last one that was not valid, and why.
    complaint: str = ""


class Generation(msgspec.Struct, frozen=True):
    """One generator of one run."""

    run: str
    #: Its place among the job's generators; -1 for the job's own requests.
    n: int
    name: str
    kind: str
    state: GenerationState = GenerationState.RUNNING
    #: Number of starts; calls from an earlier start are refused.
    starts: int = 0
    yielded: int = 0
    #: Requests that were new to the run and to the job's time window.
    taken: int = 0
    #: Requests that an earlier run of the job took within its time window.
    recent: int = 0
    bad: int = 0
    seconds: float = 0.0
    #: Why it failed, or the last URI that was not valid.
    detail: str = ""

    @property
    def known(self) -> int:
        """Requests that were known before."""
        return max(self.yielded - self.taken - self.bad, 0)


class Window(msgspec.Struct, frozen=True):
    """The job that takes these requests once, and until when."""

    job: str
    until: float


class Taken(msgspec.Struct, frozen=True):
    """The result of a batch."""

    new: int
    #: Left out because an earlier run of the job took them within the window.
    recent: int = 0


def part_of(job: str, generator: str) -> str:
    """The name of the schedule of a generator's own cron line."""
    return f"{job}{PART_MARK}{generator}"


def split_part(name: str) -> tuple[str, str]:
    """(job, generator); the second is "" for the job itself."""
    job, _, generator = name.partition(PART_MARK)
    return job, generator


def fire_key_of(generator: str, key: str) -> str:
    """The key of a run of one generator only."""
    return f"{KEY_PREFIX}{generator} {key}" if generator else key


def generator_of(fire_key: str) -> str:
    """The generator of a run; "" when it is a run of the whole job."""
    if not fire_key.startswith(KEY_PREFIX):
        return ""
    return fire_key.removeprefix(KEY_PREFIX).partition(" ")[0]
