"""Sends the output of an instance to a center, piece by piece, each until it is answered.

Runs on the agent's event loop. Reading never waits for sending: a bounded spool on disk is in
between. A program that writes without end is read at a limited speed, so that it costs the agent
no more than a part of a core.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable
from contextlib import suppress
from random import Random

from skep.agent.apps.log_spool import PIECE, Spool
from skep.errors import SkepError
from skep.model.logs import LogSourceKind
from skep.runtime.backoff import Backoff
from skep.runtime.clock import Clock
from skep.runtime.retry import Pauses
from skep.runtime.signals import WakeUp
from skep.wire.client import CenterClient
from skep.wire.messages import AppLog

log = logging.getLogger(__name__)

#: Seconds for which a first byte waits for more.
LINGER = 0.2
#: Maximum bytes per second that are read from one instance.
SPEED = 16 * 2**20
STEP = 0.01
RESEND = Backoff(first=0.5, cap=30.0)


#: (kind, run, name) -> where the output of one source goes.
LinesOf = Callable[[LogSourceKind, str, str], Callable[[bytes], None]]


def no_lines(_kind: LogSourceKind, _run: str, _name: str) -> Callable[[bytes], None]:
    """For agents that keep no searchable log."""
    return lambda _: None


class Logs:
    """The log of one instance under one token. `open` it first, then `run` it as a task."""

    def __init__(
        self,
        agent: str,
        key: tuple[str, int, int],
        spool: Spool,
        client: CenterClient,
        clock: Clock,
        rng: Random,
        lines: Callable[[bytes], None] = lambda _: None,
    ) -> None:
        """`lines` gets all output too, for the searchable log."""
        self._lines = lines
        self._agent = agent
        self._key = key
        self._spool = spool
        self._client = client
        self._clock = clock
        self._rng = rng
        self._more = WakeUp(clock)
        self._now = WakeUp(clock)
        #: Offset up to which the center has the log, as far as known.
        self._acked = 0
        #: No center accepts it any more.
        self.refused = False

    async def open(self) -> None:
        """Load the spool of an earlier process of the agent."""
        await asyncio.to_thread(self._spool.open)
        self._acked = self._spool.first

    @property
    def all_sent(self) -> bool:
        """Whether a center has everything that was written so far."""
        return self._acked >= self._spool.end

    async def take(self, output: int) -> None:
        """Read a program's output to its end, into the spool; closes it."""
        reader = asyncio.StreamReader(limit=PIECE)
        loop = asyncio.get_running_loop()
        pipe = os.fdopen(output, "rb", buffering=0)
        transport, _ = await loop.connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(reader), pipe
        )
        try:
            while data := await reader.read(PIECE):
                await self._keep(data)
        finally:
            transport.close()

    async def _keep(self, data: bytes) -> None:
        began = self._clock.monotonic()
        self._lines(data)
        try:
            await asyncio.to_thread(self._spool.write, data)
        except OSError as error:
            log.warning("log of %s/%d: %s", self._key[0], self._key[1], error)
        self._more.notify()
        spent = self._clock.monotonic() - began
        if len(data) / SPEED > spent:
            await self._clock.sleep(len(data) / SPEED - spent)

    async def say(self, words: str) -> None:
        """Add a line of the agent to the program's log."""
        await self._keep(f"skep: {words}\n".encode())

    async def run(self) -> None:
        """Send without end."""
        pauses = Pauses(RESEND, self._rng)
        while True:
            if self.all_sent:
                pauses.succeeded()
                await self._more.wait()
                await self._now.wait(LINGER)
            elif await self._send():
                pauses.succeeded()
            else:
                await self._now.wait(pauses.failed())

    def send_now(self) -> None:
        """Send without delay: a center answers again, or the log is complete."""
        self._now.notify()

    async def _send(self) -> bool:
        """Whether the center got more than before."""
        run, no, token = self._key
        try:
            offset, data = await asyncio.to_thread(self._spool.read, self._acked)
        except OSError as error:
            log.warning("cannot read the log of %s/%d: %s", run, no, error)
            return False
        dropped = offset - self._acked
        message = AppLog(self._agent, run, no, token, offset, data, dropped)
        try:
            reply = await self._client.app_log(message)
        except SkepError as error:
            self.refused = not error.retryable
            log.debug("log of %s/%d: %s", run, no, error.detail)
            return False
        self.refused = False
        moved = reply.next != self._acked
        self._acked = reply.next
        await asyncio.to_thread(self._spool.let_go, reply.next)
        return moved

    async def flush(self, seconds: float) -> bool:
        """Whether a center got everything within that time."""
        self.send_now()
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while not self.all_sent and not self.refused:
                    await self._clock.sleep(STEP)
        return self.all_sent
