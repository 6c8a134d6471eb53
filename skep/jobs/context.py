"""What every part of a center's job system uses: one struct instead of six arguments. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

from skep.jobs.intake import Intake
from skep.runtime.clock import Clock
from skep.settings import JobsSettings
from skep.store.ports import Store


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
