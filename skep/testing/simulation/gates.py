"""The ports of one simulated center: every call takes some time, may fail, and stops while the
center is frozen.

A frozen center continues where it stopped, with what it knew. A killed one writes nothing, whatever
its tasks still try when they are cancelled.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from random import Random
from typing import Any

from skep.errors import BusDown, StoreDown
from skep.testing.simulation.faults import Crash
from skep.testing.simulation.virtual_loop import LoopClock, VirtualLoop

#: Maximum seconds of a call; tasks of other centers run in between.
MOMENT = 0.004
_PLAIN = (str, bytes, int, float, bool, list, dict, tuple, type(None))


class NoAnswer(Exception):
    """A caller cannot know the result of its call."""


class CenterBorder:
    """The gate of one process of one center."""

    def __init__(self, rng: Random, outage: Callable[[], float]) -> None:
        self._rng = rng
        self._outage = outage
        self._open = asyncio.Event()
        self._open.set()
        self.dead = False
        self.outages = 0

    def freeze(self) -> None:
        self._open.clear()

    def thaw(self) -> None:
        self._open.set()

    @property
    def frozen(self) -> bool:
        return not self._open.is_set()

    async def passing(self) -> None:
        """Raises Crash when the center is dead."""
        if self.dead:
            raise Crash
        await asyncio.sleep(self._rng.uniform(0.0, MOMENT))
        await self._open.wait()
        if self.dead:
            raise Crash

    async def strike(self, error: type[Exception]) -> None:
        await self.passing()
        if self._rng.random() < self._outage():
            self.outages += 1
            raise error("simulated outage")


class GatedClock(LoopClock):
    """Sleeps while its center is frozen. `gate` is that of its center."""

    def __init__(self, loop: VirtualLoop, gate: CenterBorder) -> None:
        super().__init__(loop)
        self.gate = gate

    async def sleep(self, seconds: float) -> None:
        await super().sleep(seconds)
        await self.gate.passing()


class Gated:
    """A store, a bus, or one of their ports, behind a gate."""

    def __init__(self, target: Any, gate: CenterBorder, error: type[Exception]) -> None:
        self._target = target
        self._gate = gate
        self._error = error
        self._known: dict[str, Any] = {}

    def __getattr__(self, name: str) -> Any:
        if name not in self._known:
            self._known[name] = self._behind(getattr(self._target, name))
        return self._known[name]

    def _behind(self, found: Any) -> Any:
        if inspect.iscoroutinefunction(found):
            return self._call(found)
        if callable(found) or isinstance(found, _PLAIN):
            return found
        return Gated(found, self._gate, self._error)

    def _call(self, call: Callable[..., Any]) -> Callable[..., Any]:
        async def attempt(*args: Any, **kwargs: Any) -> Any:
            await self._gate.strike(self._error)
            result = await call(*args, **kwargs)
            # The call has taken effect; the center may not learn of it.
            await self._gate.strike(self._error)
            return result

        return attempt


def gated_store(store: Any, gate: CenterBorder) -> Any:
    return Gated(store, gate, StoreDown)


def gated_bus(bus: Any, gate: CenterBorder) -> Any:
    return Gated(bus, gate, BusDown)
