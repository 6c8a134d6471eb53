"""Stores the output of a child process from its file, each line once. Runs on centers.

A small file beside it says how far it is: token, number of the next line, byte. It is written
after the store has the lines, so a center that was killed sends some of them again, and the
intake skips them. A newer token fences a feed off: the rest of its lines is then stored under a
source that names the center, so that nothing of the file is lost and nothing is mixed.
"""

from __future__ import annotations

import asyncio
import os
from contextlib import suppress
from logging import WARNING
from pathlib import Path

import msgspec

from skep.errors import StaleToken
from skep.logs.center.intake import LogIntake
from skep.logs.line_format import encode_entry, make_entry
from skep.logs.process_output import entry_of_output
from skep.model.logs import LogBatch, LogEntry, LogSource
from skep.runtime.clock import Clock
from skep.runtime.files import read_or_none, write_durably

#: Bytes that are read at a time; a longer line is cut into parts of this size.
PIECE = 256 * 1024
#: Lines of one batch.
LINES = 5_000
#: Size of the file above which it is emptied once all is stored, and above which it is emptied in
#: any case.
LIMIT, HARD_LIMIT = 16 * 2**20, 64 * 2**20
POSITION_SUFFIX = ".fed"
#: Seconds until lines that came too fast are sent again.
PAUSE = 0.5
#: Attempts after which the rest of a file that cannot be read is skipped.
TRIES = 60


class FeedPosition(msgspec.Struct):
    """How far a file is stored."""

    source: LogSource
    token: int
    #: Number of the next line, and the byte where it starts.
    line: int
    at: int


class FileFeed:
    """`open` it before the process starts, `step` while it runs, `finish` when it has ended."""

    def __init__(self, path: Path, center: str, intake: LogIntake, clock: Clock) -> None:
        self._path = path
        self._position_file = path.with_suffix(POSITION_SUFFIX)
        self._center = center
        self._intake = intake
        self._clock = clock
        self._position: FeedPosition | None = None
        #: Bytes that were not stored because the file had to be emptied, since the last line.
        self._lost = 0

    async def open(self, source: LogSource, token: int) -> None:
        """Store what an earlier process has left, then begin. Raises Unavailable."""
        for _ in range(TRIES):
            if await self.finish():
                break
            await self._clock.sleep(PAUSE)
        size = await asyncio.to_thread(_size, self._path)
        if self._position is None or self._position.token != token:
            self._position = FeedPosition(source, token, 0, size)
            await asyncio.to_thread(self._save)

    async def finish(self) -> bool:
        """Store the rest, and a last line without a newline; returns whether all is stored. Raises
        Unavailable."""
        await asyncio.to_thread(self._load)
        while await self._feed(last=True):
            pass
        return self._position is None or self._position.at >= await asyncio.to_thread(
            _size, self._path
        )

    async def step(self) -> bool:
        """Store what the file has; returns whether there may be more. Raises Unavailable."""
        more = await self._feed(last=False)
        await asyncio.to_thread(self._bound)
        return more

    async def _feed(self, *, last: bool) -> bool:
        """Whether there may be more to store at once."""
        position = self._position
        if position is None:
            return False
        entries, end = await asyncio.to_thread(self._read, position, last)
        if end == position.at:
            return False
        if self._lost:
            entries.insert(0, self._lost_line())
        try:
            if entries and not await self._stored(position, entries):
                return False
        except StaleToken:
            await asyncio.to_thread(self._fence)
            return True
        line = position.line + len(entries)
        self._position = FeedPosition(position.source, position.token, line, end)
        self._lost = 0
        await asyncio.to_thread(self._save)
        return True

    def _lost_line(self) -> LogEntry:
        said = f"{self._lost:,} bytes of output dropped: they came faster than they were stored"
        return make_entry(self._clock.now(), WARNING, said)

    async def _stored(self, position: FeedPosition, entries: list[LogEntry]) -> bool:
        """False when the lines must be sent again later."""
        data = b"\n".join(map(encode_entry, entries))
        taken = await self._intake.take(
            LogBatch(position.source, position.token, position.line, data)
        )
        return not taken.wait

    def _read(self, position: FeedPosition, last: bool) -> tuple[list[LogEntry], int]:
        """(lines, where the next one starts). In a thread: masking takes time."""
        with suppress(OSError), self._path.open("rb") as file:
            if position.at > os.fstat(file.fileno()).st_size:
                position.at = 0  # emptied meanwhile
            file.seek(position.at)
            lines, used = split_lines(file.read(PIECE), last=last)
            now = self._clock.now()
            return [entry_of_output(one, now) for one in lines if one.strip()], position.at + used
        return [], position.at

    def _fence(self) -> None:
        """Another center has the source by now."""
        position = self._position
        if position is not None:
            name = f"{position.source.name} on {self._center}"
            source = msgspec.structs.replace(position.source, name=name)
            again = position.source.name.endswith(f" on {self._center}")
            self._position = FeedPosition(
                source if not again else position.source, position.token + again, 0, position.at
            )
            self._save()

    def _bound(self) -> None:
        """Empty a large file once it is stored, or when the store does not keep up."""
        position, size = self._position, _size(self._path)
        if position is None or size <= LIMIT or (position.at < size <= HARD_LIMIT):
            return
        with suppress(OSError):
            os.truncate(self._path, 0)
            self._lost += size - position.at
            self._position = FeedPosition(position.source, position.token, position.line, 0)
            self._save()

    def _load(self) -> None:
        if self._position is None:
            with suppress(msgspec.MsgspecError):
                self._position = msgspec.json.decode(
                    read_or_none(self._position_file) or b"", type=FeedPosition
                )

    def _save(self) -> None:
        """A full disk does no harm: the lines are sent again, and the intake skips them."""
        with suppress(OSError):
            write_durably(self._position_file, msgspec.json.encode(self._position))

    def forget(self) -> None:
        """All is stored and the process will not write again."""
        self._position_file.unlink(missing_ok=True)


def split_lines(data: bytes, *, last: bool) -> tuple[list[bytes], int]:
    """(whole lines, and the bytes that they take). What has no end yet counts as a line at the end
    of everything, and when it fills a piece."""
    *lines, rest = data.split(b"\n")
    if len(lines) > LINES:
        del lines[LINES:]
        return lines, sum(len(line) + 1 for line in lines)
    if not rest or not (len(rest) == PIECE or (last and len(data) < PIECE)):
        return lines, len(data) - len(rest)
    return [*lines, rest], len(data)


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0
