"""Ports that fail on purpose: a crash or an outage before or after any call.

A failure after the call is the harder one: the effect is on disk and the caller does not know.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from skep.errors import BusDown, StoreDown
from skep.testing.simulation.world import World

#: Ports of a store and a bus whose calls may fail.
PORTS = frozenset(
    {"runs", "requests", "blocks", "agents", "ledgers", "tokens", "alerts", "lanes", "signals"}
)


class Crash(BaseException):
    """kill -9 of a center: no handler of the program may catch it."""


class Faults:
    """The rates of faults; all can be disabled."""

    def __init__(self, world: World, crash: float, outage: float) -> None:
        self._world = world
        self._crash = crash
        self._outage = outage
        self.on = True
        self.crashes = 0
        self.outages = 0

    def strike(self, error: type[Exception]) -> None:
        """Raise at random."""
        if not self.on:
            return
        if self._world.chance(self._crash):
            self.crashes += 1
            raise Crash
        if self._world.chance(self._outage):
            self.outages += 1
            raise error("simulated outage")


class Unreliable:
    """Wraps a store, a bus or one of their ports; every awaited call may fail before or after."""

    def __init__(self, target: Any, faults: Faults, error: type[Exception]) -> None:
        self._target = target
        self._faults = faults
        self._error = error

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._target, name)
        if name in PORTS:
            return Unreliable(found, self._faults, self._error)
        return self._failing(found) if callable(found) else found

    def _failing(self, call: Callable[..., Any]) -> Callable[..., Any]:
        async def attempt(*args: Any, **kwargs: Any) -> Any:
            self._faults.strike(self._error)
            result = await call(*args, **kwargs)
            self._faults.strike(self._error)
            return result

        return attempt


def unreliable_store(store: Any, faults: Faults) -> Any:
    return Unreliable(store, faults, StoreDown)


def unreliable_bus(bus: Any, faults: Faults) -> Any:
    return Unreliable(bus, faults, BusDown)
