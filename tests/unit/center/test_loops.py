"""Loops of a center end when it is stopped, whatever their steps do."""

from __future__ import annotations

import asyncio
from typing import cast

from skep.center.loops import Loops
from skep.center.services import Services


class Deaf(Loops):
    """One loop, whose step loses the cancellation, as a client of something else may."""

    steps = 0

    def start(self) -> None:
        self._tasks = [asyncio.create_task(self._keep("deaf", self._step))]

    async def _step(self) -> None:
        self.steps += 1
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            return


async def test_a_lost_cancellation_does_not_hold_up_the_end() -> None:
    """Fault 47: what is left of a step is done, and no other one is begun."""
    loops = Deaf(cast("Services", None))
    loops.start()
    await asyncio.sleep(0)
    async with asyncio.timeout(5):
        await loops.stop()
    assert loops.steps == 1
