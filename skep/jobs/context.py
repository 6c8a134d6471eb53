"""What every part of a center's jobs works with: one struct instead of six arguments each. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

from skep.jobs.intake import Intake
from skep.runtime.clock import Clock
from skep.settings import JobsSettings
from skep.store.ports import Store


@dataclass(frozen=True, slots=True)
class JobContext:
    """Of one center."""

    #: The name of the center, which holds runs under it.
    center: str
    settings: JobsSettings
    store: Store
    intake: Intake
    clock: Clock
    rng: Random
