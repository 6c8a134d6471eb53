"""Prints the logs of instances: complete lines, control characters escaped, several at a time.

Imported when `skep app logs` runs.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from skep.cli.commands.jobs.app_calls import instances_of
from skep.cli.terminal.call_retries import with_retries
from skep.cli.terminal.center_calls import connected
from skep.cli.terminal.output import harmless_lines, say, show
from skep.embed.center_address import CenterAddress
from skep.runtime.clock import SystemClock
from skep.wire.api.apps import LogAsk

if TYPE_CHECKING:
    from skep.wire.api.apps import LogText
    from skep.wire.client import CenterClient

PART = 256 * 1024
#: Seconds that one call waits for the next line. If a call takes longer than this and the timeout
#: of its route, the center is frozen and the next center is called.
WAIT = 10.0
#: Bytes that are read to find the last lines; lines before them are not shown.
TAIL_FIRST, TAIL_MOST = 64 * 1024, 4 * 2**20


async def print_logs(
    reach: CenterAddress, run_or_job: str, no: int | None, *, follow: bool, tail: int | None
) -> None:
    """Print all logs; with `follow`, continue until the instances have ended."""
    async with connected(reach) as client:
        found = await instances_of(client, run_or_job, no)
        numbers = [line.instance.no for line in found.items]
        readers = [
            _Reader(client, found.run, number, marked=len(numbers) > 1) for number in numbers
        ]
        if follow:
            await asyncio.gather(*(reader.read(tail, follow=True) for reader in readers))
            return
        for reader in readers:
            await reader.read(tail, follow=False)


class _Reader:
    """The log of one instance."""

    def __init__(self, client: CenterClient, run: str, no: int, *, marked: bool) -> None:
        self._client = client
        self._run = run
        self._mark = f"{no} | " if marked else ""
        self._no = no
        self._half = ""

    async def read(self, tail: int | None, *, follow: bool) -> None:
        at = await self._last_lines(tail) if tail is not None else await self._first()
        while True:
            part = await (self._next(at) if follow else self._part(at))
            self._print(part.text)
            at = part.next
            if part.over or (not follow and at >= part.end):
                break
        if self._half:
            self._line(self._half)

    async def _part(self, start: int, wait: float = 0.0, limit: int = PART) -> LogText:
        return await self._client.api.apps.log(self._run, self._no, LogAsk(start, limit, wait))

    async def _next(self, start: int) -> LogText:
        return await with_retries(lambda: self._part(start, WAIT), SystemClock())

    async def _first(self) -> int:
        part = await self._part(0, limit=1)
        if part.deleted:
            say(f"instance {self._no}: the oldest {part.deleted:,} bytes were deleted")
        return part.start

    async def _last_lines(self, count: int) -> int:
        """Print the last complete lines; return the position to continue from."""
        size = TAIL_FIRST
        while True:
            part = await self._part(-size, limit=size)
            lines = part.text.split("\n")
            if len(lines) > count + 1 or part.start <= part.deleted or size >= TAIL_MOST:
                break
            size *= 8
        *whole, half = lines
        wanted = count - bool(half)  # an incomplete line counts as one
        for line in whole[-wanted:] if wanted > 0 else []:
            self._line(line)
        self._half = half if count else ""
        return part.next

    def _print(self, text: str) -> None:
        *whole, self._half = (self._half + text).split("\n")
        for line in whole:
            self._line(line)

    def _line(self, line: str) -> None:
        show(self._mark + harmless_lines(line.encode()))
