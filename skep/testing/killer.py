"""Kills, freezes and stops the processes of a fleet at random, from a printed seed.

Runs inside a test, together with its load. The same seed applies the same acts to the same victims
after the same pauses, so a failure can be reproduced:

    killer = Killer(fleet.agents, seed_from(os.environ))    # prints the seed
    await killer.strike(10, acts=(Act.KILL, Act.FREEZE))
    SKEP_TESTS_SEED=4711 pytest ...                          # the same again

It affects only the given processes. A victim that was killed or stopped is restarted before
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
#: Minimum and maximum seconds.
Span = tuple[float, float]


class Act(StrEnum):
    """An act on a process."""

    KILL = "kill"
    FREEZE = "freeze"
    STOP = "stop"


class Victim(Protocol):
    """A process; `skep.testing.processes` and `servers` have them."""

    def start(self) -> None: ...
    def kill(self) -> None: ...
    def stop(self) -> None: ...
    def pause(self) -> None: ...
    def resume(self) -> None: ...


class Stroke(NamedTuple):
    """After a pause, one act on one victim; a freeze has a duration."""

    after: float
    victim: int
    act: Act
    lasts: float


def seed_from(environment: Mapping[str, str]) -> int:
    """The seed of the environment, or a new one."""
    asked = environment.get(VARIABLE, "")
    return int(asked) if asked else secrets.randbelow(10**9)


def plan(
    rng: Random, victims: int, count: int, acts: Sequence[Act], gap: Span, freeze: Span
) -> list[Stroke]:
    """All strokes, before the first one."""
    return [
        Stroke(rng.uniform(*gap), rng.randrange(victims), rng.choice(acts), rng.uniform(*freeze))
        for _ in range(count)
    ]


class Killer:
    """Applies acts to `victims`, one at a time."""

    def __init__(self, victims: Sequence[Victim], seed: int) -> None:
        self._victims = list(victims)
        self._rng = Random(seed)  # noqa: S311 - a test repeats
        self._rising: dict[int, asyncio.Future[None]] = {}
        self.seed = seed
        #: Strokes so far.
        self.struck: Counter[Act] = Counter()
        sys.stdout.write(f"SEED {seed}: {VARIABLE}={seed} repeats the same strokes\n")

    async def strike(
        self,
        count: int,
        acts: Sequence[Act] = (Act.KILL,),
        gap: Span = (0.1, 0.5),
        freeze: Span = (0.1, 1.0),
    ) -> None:
        """Apply `count` strokes; every victim runs when this returns."""
        try:
            for stroke in plan(self._rng, len(self._victims), count, acts, gap, freeze):
                await asyncio.sleep(stroke.after)
                await self._fall(stroke)
        finally:
            await asyncio.gather(*self._rising.values())
            self._rising.clear()

    async def _fall(self, stroke: Stroke) -> None:
        """Apply a stroke; waits for a victim that is still starting."""
        if stroke.victim in self._rising:
            await self._rising.pop(stroke.victim)
        victim = self._victims[stroke.victim]
        if stroke.act is Act.FREEZE:
            await _freeze(victim, stroke.lasts)
        else:
            end = victim.kill if stroke.act is Act.KILL else victim.stop
            await asyncio.to_thread(end)
            # Other victims may be struck while this one starts.
            starting = asyncio.to_thread(victim.start)
            self._rising[stroke.victim] = asyncio.ensure_future(starting)
        self.struck[stroke.act] += 1

    def figures(self) -> dict[str, int]:
        """Counts for `tell`."""
        return {"seed": self.seed, **{f"{act}s": count for act, count in self.struck.items()}}


async def _freeze(victim: Victim, seconds: float) -> None:
    victim.pause()
    try:
        await asyncio.sleep(seconds)
    finally:
        victim.resume()
