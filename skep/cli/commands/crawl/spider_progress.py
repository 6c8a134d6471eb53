"""Progress of a spider: one line on stderr, redrawn, with notes above it.

Used by `skep run`. It writes only to stderr, because stdout is for items.
"""

from __future__ import annotations

import io
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from typing import TYPE_CHECKING, Any, TextIO, cast

from skep.cli.terminal.line_wrapping import columns, fitted_parts, wrapped
from skep.cli.terminal.program_name import with_hints
from skep.cli.terminal.progress import CLEAR, LINE_EVERY, WINDOW
from skep.runtime.clock import Clock

if TYPE_CHECKING:
    from skep.spiders.driving.stats import Stats


class SpiderProgress:
    """`1,234 pages · 812 p/s · 1,230 items · 3 errors · 456 waiting · eta 3s`.

    On a terminal the line is redrawn; elsewhere it prints one line every two seconds.
    """

    def __init__(self, stream: TextIO, clock: Clock) -> None:
        self._stream = stream
        self._clock = clock
        self.live = stream.isatty()
        self._shown_at: float | None = None
        self._marks: deque[tuple[float, int]] = deque()
        self._bar = ""
        #: Whether the cursor is at the beginning of a line, so that the bar can be drawn.
        self._begins_line = True

    def update(self, stats: Stats) -> None:
        now = self._clock.monotonic()
        if self._shown_at is None:
            self._shown_at = now
        rate = self._rate(stats.pages + stats.failed, now)
        line = figures(stats, rate, columns(self._stream))
        if self.live:
            self._bar = line
            if self._begins_line:
                self._write(f"{CLEAR}{line}")
        elif now - self._shown_at >= LINE_EVERY:
            self._shown_at = now
            self._write(f"{line}\n")

    def note(self, text: str, *, exact: bool = False) -> None:
        """Print a line above the bar; `exact` prevents wrapping."""
        if not self._begins_line:
            self._write("\n")
            self._begins_line = True
        text = text if exact else wrapped(with_hints(text), columns(self._stream))
        self._write(f"{CLEAR}{text}\n{self._bar}" if self.live else f"{text}\n")

    def printed(self, stream: TextIO, text: str) -> None:
        """Print text of the spider; the bar is redrawn after the end of its line."""
        if self._begins_line:
            self._write(CLEAR)
        stream.write(text)
        stream.flush()
        self._begins_line = text.endswith("\n") if text else self._begins_line
        if self._begins_line:
            self._write(self._bar)

    def end(self) -> None:
        """Remove the bar."""
        if self.live and self._bar:
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
    """A stream for log lines that prints them above the bar."""

    def __init__(self, progress: SpiderProgress, stream: TextIO) -> None:
        self._progress = progress
        self._stream = stream

    def isatty(self) -> bool:
        return self._stream.isatty()

    def write(self, text: str) -> int:
        self._progress.note(text.rstrip("\n"), exact="\nTraceback " in text)
        return len(text)


class PrintedAboveBar(io.TextIOBase):
    """Standard output of a spider while the bar is drawn on the same terminal."""

    def __init__(self, progress: SpiderProgress, stream: TextIO) -> None:
        self._progress = progress
        self._stream = stream

    def isatty(self) -> bool:
        return self._stream.isatty()

    def fileno(self) -> int:
        return self._stream.fileno()

    @property
    def buffer(self) -> Any:
        return self._stream.buffer

    def write(self, text: str) -> int:
        self._progress.printed(self._stream, text)
        return len(text)

    def flush(self) -> None:
        self._stream.flush()


@contextmanager
def printing_above(progress: SpiderProgress, stream: TextIO) -> Iterator[None]:
    """Print the output of the spider above the bar if both are on a terminal."""
    if not progress.live or not stream.isatty():
        yield
        return
    with redirect_stdout(cast("TextIO", PrintedAboveBar(progress, stream))):
        yield


def figures(stats: Stats, rate: float, width: int | None = None) -> str:
    """The progress line; the remaining time covers the requests that wait now."""
    errors = stats.failed + stats.callback_errors
    eta = "eta 0s" if not stats.open else f"eta {stats.open / rate:.0f}s" if rate else "eta ?"
    counts = (f"{stats.items:,} items", f"{errors:,} errors", f"{stats.open:,} waiting")
    return fitted_parts((f"{stats.pages:,} pages", f"{rate:,.0f} p/s", *counts, eta), width)
