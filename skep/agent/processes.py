"""`--processes N`: a parent process that keeps N agents running.

Each child is its own agent. A child that dies is restarted, with a growing delay if it dies soon.
The first SIGTERM or SIGINT is passed on and the parent waits; the second kills. No child outlives
its parent, not even one that was killed with -9: the kernel ensures that.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from asyncio.subprocess import Process
from collections.abc import Callable
from random import Random

from skep.runtime.backoff import Backoff
from skep.runtime.child_processes import death_signal
from skep.runtime.clock import Clock
from skep.runtime.retry import Pauses

log = logging.getLogger(__name__)

RESTART = Backoff(first=0.5, cap=30.0)
#: Seconds after which a child counts as started successfully.
STEADY_SECONDS = 60.0
#: Exit codes that a restart cannot fix: wrong usage, refused by the center, another process is
#: this agent.
HOPELESS = frozenset({2, 4, 5})

Argv = Callable[[int], list[str]]


async def supervise(
    make_argv: Argv,
    count: int,
    clock: Clock,
    rng: Random,
    hopeless: frozenset[int] = HOPELESS,
) -> int:
    """Keep children 1 to `count` running until a signal; returns the highest exit code.

    A child that ends with 0, or with a code that a restart cannot fix, is not restarted.
    """
    crew = _AgentProcesses(make_argv, clock, rng, hopeless)
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, crew.signalled)
    try:
        codes = await asyncio.gather(*(crew.keep(number) for number in range(1, count + 1)))
    finally:
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.remove_signal_handler(number)
        crew.kill()
    return max(codes)


class _AgentProcesses:
    """The running children, and whether they should run."""

    def __init__(
        self, make_argv: Argv, clock: Clock, rng: Random, hopeless: frozenset[int]
    ) -> None:
        self._make_argv = make_argv
        self._clock = clock
        self._rng = rng
        self._hopeless = hopeless
        self._running: dict[int, Process] = {}
        self._stopping = asyncio.Event()
        self._die_with_parent = death_signal(os.getpid())

    def signalled(self) -> None:
        """Pass the first signal on; kill at the second."""
        if self._stopping.is_set():
            self.kill()
            return
        self._stopping.set()
        for child in self._running.values():
            child.terminate()

    def kill(self) -> None:
        for child in self._running.values():
            child.kill()

    async def keep(self, number: int) -> int:
        """Run one child, with restarts; returns its last exit code."""
        pauses = Pauses(RESTART, self._rng)
        while True:
            began = self._clock.monotonic()
            code = await self._live(number)
            if self._stopping.is_set() or code == 0 or code in self._hopeless:
                return abs(code)
            if self._clock.monotonic() - began >= STEADY_SECONDS:
                pauses.succeeded()
            delay = pauses.failed()
            log.warning("agent %d ended with code %d; restarting in %.1f s", number, code, delay)
            if await self._stopped_within(delay):
                return 0

    async def _live(self, number: int) -> int:
        child = await asyncio.create_subprocess_exec(
            *self._make_argv(number),
            preexec_fn=self._die_with_parent,
            # Only the parent gets Ctrl-C, or each child would get the signal twice.
            start_new_session=True,
        )
        self._running[number] = child
        if self._stopping.is_set():  # the signal arrived during the start
            child.terminate()
        try:
            return await child.wait()
        finally:
            del self._running[number]

    async def _stopped_within(self, seconds: float) -> bool:
        stopped = asyncio.ensure_future(self._stopping.wait())
        alarm = asyncio.ensure_future(self._clock.sleep(seconds))
        try:
            await asyncio.wait((stopped, alarm), return_when=asyncio.FIRST_COMPLETED)
        finally:
            stopped.cancel()
            alarm.cancel()
        return self._stopping.is_set()
