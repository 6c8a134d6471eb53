"""What every part of a center's job system uses, as one struct. Pure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from skep.jobs.intake import Intake
from skep.model.logs import LogSource
from skep.runtime.clock import Clock
from skep.settings import JobsSettings
from skep.store.ports import Store

Wrote = Callable[[LogSource, int, str], None]


def _nothing(_source: LogSource, _token: int, _text: str) -> None:
    """For a center that stores no log lines."""


@dataclass(frozen=True, slots=True)
class JobContext:
    """The context of one center."""

    #: The name of the center, under which it leases runs.
    center: str
    settings: JobsSettings
    store: Store
    intake: Intake
    clock: Clock
    rng: Random
    #: Takes a text that code of a run wrote, under a fencing token.
    wrote: Wrote = _nothing
