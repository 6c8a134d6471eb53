"""What every part of one center stands on: its name, settings, borders, clock. Pure.

Building a center from it opens nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random

from skep.archive.ports import Archive
from skep.bus.ports import Bus
from skep.runtime.clock import Clock
from skep.settings import Settings
from skep.store.ports import Store


@dataclass(slots=True)
class OwnAddress:
    """Where processes on this machine reach the center. The system may choose its port, so the
    server that serves the center fills it in."""

    #: "" as long as nothing serves.
    url: str = ""

    def get(self) -> str:
        return self.url


@dataclass(frozen=True, slots=True)
class Foundation:
    """Of one center."""

    name: str
    settings: Settings
    store: Store
    bus: Bus
    archive: Archive
    clock: Clock
    rng: Random
    address: OwnAddress = field(default_factory=OwnAddress)
