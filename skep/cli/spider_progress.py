"""How a spider goes on: one line on stderr, and the words for its end.

Used by `skep run`. It writes to stderr alone: stdout belongs to items.
"""

from __future__ import annotations

import io
from collections import deque
from typing import TYPE_CHECKING, TextIO

from skep.cli.progress import CLEAR, LINE_EVERY, WINDOW
from skep.runtime.clock import Clock

if TYPE_CHECKING:
    from skep.spiders.stats import Stats


class SpiderProgress:
    """`1,234 pages · 812 p/s · 1,230 items · 3 errors · 456 waiting · eta 3s`.

    On a terminal it is drawn again and again; elsewhere it is a line every two seconds.
    """

    def __init__(self, stream: TextIO, clock: Clock) -> None:
        self._stream = stream
        self._clock = clock
        self._live = stream.isatty()
        self._shown_at: float | None = None
        self._marks: deque[tuple[float, int]] = deque()
        self._bar = ""

    def update(self, stats: Stats) -> None:
        now = self._clock.monotonic()
        if self._shown_at is None:
            self._shown_at = now
        line = figures(stats, self._rate(stats.pages + stats.failed, now))
        if self._live:
            self._bar = line
            self._write(f"{CLEAR}{line}")
        elif now - self._shown_at >= LINE_EVERY:
            self._shown_at = now
            self._write(f"{line}\n")

    def note(self, text: str) -> None:
        """A line above the bar."""
        self._write(f"{CLEAR}{text}\n{self._bar}" if self._live else f"{text}\n")

    def end(self) -> None:
        """Take the bar away."""
        if self._live and self._bar:
            self._bar = ""
            self._write(CLEAR)

    def _rate(self, ended: int, now: float) -> float:
        self._marks.append((now, ended))
        while len(self._marks) > 1 and self._marks[1][0] <= now - WINDOW:
            self._marks.popleft()
        since, before = self._marks[0]
        return (ended - before) / (now - since) if now > since else 0.0

    def _write(self, text: str) -> None:
        self._stream.write(text)
        self._stream.flush()


class AboveBar(io.TextIOBase):
    """A stream for log lines that leaves the bar where it is."""

    def __init__(self, progress: SpiderProgress, stream: TextIO) -> None:
        self._progress = progress
        self._stream = stream

    def isatty(self) -> bool:
        return self._stream.isatty()

    def write(self, text: str) -> int:
        self._progress.note(text.rstrip("\n"))
        return len(text)


def figures(stats: Stats, rate: float) -> str:
    """The line itself; the remaining time is that of the requests that wait now."""
    errors = stats.failed + stats.callback_errors
    eta = "eta 0s" if not stats.open else f"eta {stats.open / rate:.0f}s" if rate else "eta ?"
    return (
        f"{stats.pages:,} pages · {rate:,.0f} p/s · {stats.items:,} items · {errors:,} errors · "
        f"{stats.open:,} waiting · {eta}"
    )
