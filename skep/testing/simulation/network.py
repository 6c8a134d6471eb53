"""Messages between agents, clients and centers: lost, doubled, delayed, never changed.

Randomness comes from the seed. A message whose answer is lost may have been executed, which its
sender does not know.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from skep.errors import SkepError
from skep.testing.simulation.centers import CenterParts, SimCenter
from skep.testing.simulation.faults import Crash
from skep.testing.simulation.world import World


class Lost(Exception):
    """The caller got no answer and cannot know the result."""


@dataclass(slots=True)
class Weather:
    """Probabilities per message."""

    request_lost: float = 0.05
    reply_lost: float = 0.05
    doubled: float = 0.05
    late: float = 0.05


class Network:
    """Delivers a call to any center that is up."""

    def __init__(self, world: World, centers: Sequence[SimCenter], weather: Weather) -> None:
        self._world = world
        self._centers = centers
        self.weather = weather
        self.lost = 0

    def call(self, work: Callable[[CenterParts], Any]) -> Any:
        """The answer, or Lost. `work` creates a new coroutine at each call."""
        world, weather = self._world, self.weather
        center = world.rng.choice(list(self._centers))
        if world.chance(weather.late):
            # It arrives after the caller has given up and may have sent another.
            world.after(world.rng.uniform(0.5, 20.0), lambda: self._deliver_quietly(center, work))
            raise self._no_answer()
        if world.chance(weather.request_lost):
            raise self._no_answer()
        answer = self._deliver(center, work)
        if world.chance(weather.doubled):
            self._deliver_quietly(center, work)
        if world.chance(weather.reply_lost):
            raise self._no_answer()
        return answer

    def _no_answer(self) -> Lost:
        self.lost += 1
        return Lost()

    def _deliver(self, center: SimCenter, work: Callable[[CenterParts], Any]) -> Any:
        try:
            return center.call(work)
        except (Crash, ConnectionError, SkepError) as error:
            raise self._no_answer() from error

    def _deliver_quietly(self, center: SimCenter, work: Callable[[CenterParts], Any]) -> None:
        try:
            center.call(work)
        except (Crash, ConnectionError, SkepError):
            return
