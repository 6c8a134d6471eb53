"""Kills, freezes and stops the processes of a fleet by chance, from a seed that is told.

Runs inside a test, beside its load. The same seed strikes the same victims in the same way
after the same pauses, so a failure can be had again:

    killer = Killer(fleet.agents, seed_from(os.environ))    # prints the seed
    await killer.strike(10, acts=(Act.KILL, Act.FREEZE))
    SKEP_TESTS_SEED=4711 pytest ...                          # the same once more

It strikes only what it was given. A victim that was killed or stopped is started again before
`strike` returns.
"""

from __future__ import annotations

import asyncio
import secrets
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from enum import StrEnum
from random import Random
from typing import NamedTuple, Protocol

VARIABLE = "SKEP_TESTS_SEED"
#: From and to, in seconds.
Span = tuple[float, float]


class Act(StrEnum):
    """What can be done to a process."""

    KILL = "kill"
    FREEZE = "freeze"
    STOP = "stop"


class Victim(Protocol):
    """A process that can be struck; `skep.testing.processes` and `servers` have them."""

    def start(self) -> None: ...
    def kill(self) -> None: ...
    def stop(self) -> None: ...
    def pause(self) -> None: ...
    def resume(self) -> None: ...


class Stroke(NamedTuple):
    """After a pause, this victim, this act; a freeze lasts."""

    after: float
    victim: int
    act: Act
    lasts: float


def seed_from(environment: Mapping[str, str]) -> int:
    """The seed that was asked for, or a new one."""
    asked = environment.get(VARIABLE, "")
    return int(asked) if asked else secrets.randbelow(10**9)


def plan(
    rng: Random, victims: int, count: int, acts: Sequence[Act], gap: Span, freeze: Span
) -> list[Stroke]:
    """Every stroke, before the first one falls."""
    return [
        Stroke(rng.uniform(*gap), rng.randrange(victims), rng.choice(acts), rng.uniform(*freeze))
        for _ in range(count)
    ]


class Killer:
    """Strikes `victims`, one at a time."""

    def __init__(self, victims: Sequence[Victim], seed: int) -> None:
        self._victims = list(victims)
        self._rng = Random(seed)  # noqa: S311 - a test repeats
        self._rising: dict[int, asyncio.Future[None]] = {}
        self.seed = seed
        #: What fell so far.
        self.struck: Counter[Act] = Counter()
        sys.stdout.write(f"SEED {seed}: {VARIABLE}={seed} strikes in the same way again\n")

    async def strike(
        self,
        count: int,
        acts: Sequence[Act] = (Act.KILL,),
        gap: Span = (0.1, 0.5),
        freeze: Span = (0.1, 1.0),
    ) -> None:
        """`count` strokes; every victim runs again when it returns."""
        try:
            for stroke in plan(self._rng, len(self._victims), count, acts, gap, freeze):
                await asyncio.sleep(stroke.after)
                await self._fall(stroke)
        finally:
            await asyncio.gather(*self._rising.values())
            self._rising.clear()

    async def _fall(self, stroke: Stroke) -> None:
        """A victim that is still on its way up is not struck before it stands."""
        if stroke.victim in self._rising:
            await self._rising.pop(stroke.victim)
        victim = self._victims[stroke.victim]
        if stroke.act is Act.FREEZE:
            await _freeze(victim, stroke.lasts)
        else:
            end = victim.kill if stroke.act is Act.KILL else victim.stop
            await asyncio.to_thread(end)
            # The others may be struck while this one starts.
            starting = asyncio.to_thread(victim.start)
            self._rising[stroke.victim] = asyncio.ensure_future(starting)
        self.struck[stroke.act] += 1

    def figures(self) -> dict[str, int]:
        """For `tell`."""
        return {"seed": self.seed, **{f"{act}s": count for act, count in self.struck.items()}}


async def _freeze(victim: Victim, seconds: float) -> None:
    victim.pause()
    try:
        await asyncio.sleep(seconds)
    finally:
        victim.resume()
