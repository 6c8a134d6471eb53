"""A simulated center: the real rooms with failing ports, killed and restarted.

It shares the store and the bus with the others, and loses everything else when killed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from skep.archive.ports import CommittedEnd, RecordLocation, SetAside
from skep.errors import SkepError
from skep.fleet.roster import Roster
from skep.jobs.intake import Intake
from skep.jobs.request_validation import Validator
from skep.lanes.dispatch import Dispatcher
from skep.lanes.leases import Leases
from skep.model.hosts.politeness import Politeness
from skep.results.ingest import Ingest
from skep.settings import Settings
from skep.testing.simulation.faults import Crash, Faults, unreliable_bus, unreliable_store
from skep.testing.simulation.world import World, drive


class MemoryArchive:
    """Stores blobs in order, like a synced segment."""

    def __init__(self) -> None:
        self.size = 0

    async def open(
        self,
        committed_end: CommittedEnd,  # noqa: ARG002
        *,
        store_is_empty: bool = False,  # noqa: ARG002
    ) -> list[SetAside]:
        """There is nothing to set aside."""
        return []

    async def append(self, blobs: Sequence[bytes]) -> list[RecordLocation]:
        places: list[RecordLocation] = []
        for blob in blobs:
            places.append(RecordLocation("simulated", self.size))
            self.size += len(blob)
        return places

    async def read(self, segment: str, offset: int, length: int) -> bytes:
        raise NotImplementedError

    async def close(self) -> None:
        """There is nothing to close."""

    async def delete(self, segment: str) -> int | None:
        raise NotImplementedError

    async def usage(self) -> tuple[int, int]:
        return 1, self.size

    async def sizes(self, segments: Sequence[str]) -> dict[str, int]:
        return dict.fromkeys(segments, self.size)

    async def check(self) -> None:
        """It is always available."""

    def describe(self) -> str:
        return "simulated"


@dataclass(slots=True)
class CenterParts:
    """The memory of a center; lost when it is killed."""

    intake: Intake
    dispatcher: Dispatcher
    leases: Leases
    ingest: Ingest
    roster: Roster


class SimCenter:
    """Runs its loops on the world's clock; answers calls while it is up."""

    def __init__(
        self, name: str, world: World, settings: Settings, store: Any, bus: Any, faults: Faults
    ) -> None:
        self.name = name
        self._world = world
        self._settings = settings
        self._store = unreliable_store(store, faults)
        self._bus = unreliable_bus(bus, faults)
        self._archive = MemoryArchive()
        self._life = 0
        self.rooms: CenterParts | None = None
        self.start()

    def start(self) -> None:
        """Start with empty memory, as after kill -9."""
        world, settings, store, bus = self._world, self._settings, self._store, self._bus
        politeness = Politeness(settings.sites)
        dispatcher = Dispatcher(
            settings.lanes, store, bus, world, self.name, lambda: None, politeness
        )
        self.rooms = CenterParts(
            Intake(store, Validator(("http",), world.rng), world),
            dispatcher,
            Leases(dispatcher, settings.lanes, store, bus, world, politeness),
            Ingest(settings.lanes, store, self._archive, world, world.rng, politeness),
            Roster(settings.center, store, world),
        )
        self._life += 1
        life = self._life
        self._loop(life, 0.0, settings.lanes.reconcile_every, self._reconcile)
        self._loop(life, 0.05, 0.2, self._dispatch)
        self._loop(life, 0.1, settings.center.sweep_every, self._sweep)

    @property
    def up(self) -> bool:
        return self.rooms is not None

    def kill(self) -> None:
        """Lose everything in memory; it restarts after a while."""
        self.rooms = None
        self._world.after(self._world.rng.uniform(0.2, 8.0), self.start)

    def call(self, work: Callable[[CenterParts], Any]) -> Any:
        """One call from outside; raises Crash when the center died during it."""
        if self.rooms is None:
            raise ConnectionError(self.name)
        try:
            return drive(work(self.rooms))
        except Crash:
            self.kill()
            raise

    def _loop(self, life: int, first: float, every: float, step: Callable[[], Any]) -> None:
        def turn() -> None:
            if self._life != life or self.rooms is None:
                return
            try:
                drive(step())
            except Crash:
                self.kill()
                return
            except SkepError:
                self.rooms.roster.deaf()
            self._world.after(every, turn)

        self._world.after(first, turn)

    async def _dispatch(self) -> None:
        assert self.rooms is not None
        await self.rooms.dispatcher.dispatch()

    async def _reconcile(self) -> None:
        assert self.rooms is not None
        await self.rooms.dispatcher.reconcile()

    async def _sweep(self) -> None:
        assert self.rooms is not None
        if self.rooms.roster.may_judge:
            await self.rooms.leases.reap(await self.rooms.roster.dead())
