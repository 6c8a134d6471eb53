"""Messages of a file, one per line. New lines are read as they are appended.

The position after the last acknowledged line is kept outside, together with everything before it:
a line that was acknowledged after an open one can come back. A line without its end is not complete
and waits.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from skep.errors import ConfigurationError, Unavailable
from skep.runtime.clock import Clock
from skep.streams.blocking_thread import OneThread
from skep.streams.inputs.ports import InputMessage, Positions

#: Bytes that one call reads at most, and so the longest line.
READ_LIMIT = 16 * 2**20
_POLL = 0.2


class LinesFileInput:
    """One reader of one file."""

    def __init__(self, path: Path, positions: Positions, clock: Clock) -> None:
        self._path = path
        self._positions = positions
        self._clock = clock
        self._thread = OneThread("file-input")
        self._next = 0
        self._kept = 0
        #: Start of each line that was read and is not acknowledged -> its end.
        self._open: dict[int, int] = {}

    async def open(self) -> None:
        self._open = {}
        self._next = self._kept = (await self._positions.load()).get(str(self._path), 0)
        await self._thread.run(self._size)

    async def read(self, limit: int, wait: float) -> list[InputMessage]:
        until = self._clock.monotonic() + wait
        while True:
            lines = await self._thread.run(self._lines, limit)
            if lines or self._clock.monotonic() >= until:
                return self._taken(lines)
            await self._clock.sleep(_POLL)

    async def acknowledge(self, positions: Sequence[str]) -> None:
        for position in positions:
            self._open.pop(int(position), None)
        done = min(self._open, default=self._next)
        if done != self._kept:
            await self._positions.save({str(self._path): done})
            self._kept = done

    async def close(self) -> None:
        await self._thread.close()

    def describe(self) -> str:
        return str(self._path)

    def _taken(self, lines: Sequence[bytes]) -> list[InputMessage]:
        messages = []
        for line in lines:
            end = self._next + len(line)
            self._open[self._next] = end
            messages.append(InputMessage(str(self._next), line.rstrip(b"\r\n")))
            self._next = end
        return messages

    # -- in the thread

    def _size(self) -> int:
        try:
            return self._path.stat().st_size
        except FileNotFoundError:
            return 0  # it may be created later
        except OSError as error:
            raise ConfigurationError(f"cannot read {self._path}: {error.strerror}") from error

    def _lines(self, limit: int) -> list[bytes]:
        size = self._size()
        if size < self._next:
            told = f"{self._path} has {size} bytes, and {self._next} were read"
            raise ConfigurationError(f"{told}: it was truncated; reset its position")
        if size == self._next:
            return []
        try:
            with self._path.open("rb") as file:
                file.seek(self._next)
                text = file.read(READ_LIMIT)
        except OSError as error:
            raise Unavailable(f"cannot read {self._path}: {error.strerror}") from error
        if len(text) == READ_LIMIT and b"\n" not in text:
            raise ConfigurationError(f"{self._path} has a line of more than {READ_LIMIT} bytes")
        return _split(text[: text.rfind(b"\n") + 1], limit)


def _split(text: bytes, limit: int) -> list[bytes]:
    """The first lines, with their ends; an empty line is a message too."""
    lines: list[bytes] = []
    begin = 0
    while len(lines) < limit and begin < len(text):
        end = text.index(b"\n", begin) + 1
        lines.append(text[begin:end])
        begin = end
    return lines
