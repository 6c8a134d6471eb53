"""What one generator did in one run: its state, its figures, its last complaint. Pure data.

A generator that is begun again, after a crash or a pause, counts from the start: `taken` alone
is of all its lives together, because what it took stays taken.
"""

from __future__ import annotations

import re
from enum import StrEnum

import msgspec

#: Fire keys of runs that a generator's own cron line started begin so.
KEY_PREFIX = "generator "
#: Between the name of a job and the name of its generator, in schedules and fires.
PART_MARK = "#"
PART_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,15}")
#: The number of the job's own `requests` among its generators.
REQUESTS = -1


class GenerationState(StrEnum):
    """The last two are its end; a failed one is begun again when its run is resumed."""

    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"


class Counts(msgspec.Struct, frozen=True):
    """What came out of a generator so far in this life."""

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
    #: How often it was begun; who speaks for an older beginning is not heard.
    starts: int = 0
    yielded: int = 0
    #: New to the run, and inside the job's window of time.
    taken: int = 0
    #: Taken by an earlier run of the job inside its window.
    recent: int = 0
    bad: int = 0
    seconds: float = 0.0
    #: Why it failed, or the last URI that was not valid.
    detail: str = ""

    @property
    def known(self) -> int:
        """Had been there before."""
        return max(self.yielded - self.taken - self.bad, 0)


class Window(msgspec.Struct, frozen=True):
    """Of whom, and until when, what is taken now is not taken again."""

    job: str
    until: float


class Taken(msgspec.Struct, frozen=True):
    """What became of a batch."""

    new: int
    #: Left out because an earlier run of the job had them not long ago.
    recent: int = 0


def part_of(job: str, generator: str) -> str:
    """The name under which a generator's own cron line is planned."""
    return f"{job}{PART_MARK}{generator}"


def split_part(name: str) -> tuple[str, str]:
    """(job, generator); the second is "" for the job itself."""
    job, _, generator = name.partition(PART_MARK)
    return job, generator


def fire_key_of(generator: str, key: str) -> str:
    """The key of a run of one generator only."""
    return f"{KEY_PREFIX}{generator} {key}" if generator else key


def generator_of(fire_key: str) -> str:
    """Which generator a run is of; "" when it is a run of the whole job."""
    if not fire_key.startswith(KEY_PREFIX):
        return ""
    return fire_key.removeprefix(KEY_PREFIX).partition(" ")[0]
