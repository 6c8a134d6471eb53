"""What every part of one center uses: name, settings, store, bus, archive, clock. Pure.

Building a center from it opens nothing.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from random import Random

from skep.archive.ports import Archive
from skep.bus.ports import Bus
from skep.runtime.clock import Clock
from skep.settings import Settings
from skep.store.ports import Store


@dataclass(slots=True)
class OwnAddress:
    """The URL of the center for processes on this machine. The system may choose the port, so the
    server of the center sets it."""

    #: "" until the server runs.
    url: str = ""

    def get(self) -> str:
        return self.url


@dataclass(frozen=True, slots=True)
class Foundation:
    """The foundation of one center."""

    name: str
    settings: Settings
    store: Store
    bus: Bus
    archive: Archive
    clock: Clock
    rng: Random
    #: The address of this center for its child processes.
    address: OwnAddress = field(default_factory=OwnAddress)
    #: Set while the center releases its callers to stop.
    closing: asyncio.Event = field(default_factory=asyncio.Event)
