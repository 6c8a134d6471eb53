"""A one-line progress bar on stderr; without a terminal, one line every two seconds.

Used by commands that wait. It writes only to stderr, because stdout is for results.
"""

from __future__ import annotations

from collections import deque
from typing import TextIO

from skep.cli.terminal.line_wrapping import columns, fitted_parts, wrapped
from skep.runtime.clock import Clock

WIDTH = 24
LINE_EVERY = 2.0
#: The rate is measured over the last N seconds.
WINDOW = 3.0
CLEAR = "\r\x1b[K"


class Progress:
    """`612/1000 · 2400 p/s · 0 failed · eta 0s`, redrawn at each `update`."""

    def __init__(self, stream: TextIO, clock: Clock, before: int = 0) -> None:
        """`before` requests had ended when the command began; the rate does not count them."""
        self._stream = stream
        self._clock = clock
        self._live = stream.isatty()
        self._began = clock.monotonic()
        self._shown_at = self._began
        self._last = ""
        self._written = ""
        self._before = before
        self._marks = deque([(self._began, before)])

    def update(self, ended: int, total: int, failed: int) -> None:
        """Draw the bar; without a terminal, print a line if the last one is old enough."""
        now = self._clock.monotonic()
        line = self._line(ended, total, failed, self._rate(ended, total, now))
        if self._live:
            self._write(f"{CLEAR}{line}")
        elif now - self._shown_at >= LINE_EVERY:
            self._shown_at = now
            self._write(f"{line}\n")
            self._written = line
        self._last = line

    def note(self, text: str) -> None:
        """Print a line above the bar."""
        text = wrapped(text, columns(self._stream))
        self._write(f"{CLEAR}{text}\n{self._last}" if self._live else f"{text}\n")

    def end(self) -> None:
        """Keep the last state on the screen."""
        if self._live and self._last:
            self._write("\n")
        elif self._last != self._written:
            self._write(f"{self._last}\n")

    def _rate(self, ended: int, total: int, now: float) -> float:
        """The rate of the last seconds; the overall rate when everything has ended."""
        self._marks.append((now, ended))
        while self._marks[1][0] <= now - WINDOW:
            self._marks.popleft()
        since, before = self._marks[0] if ended < total else (self._began, self._before)
        return (ended - before) / (now - since) if now > since else 0.0

    def _line(self, ended: int, total: int, failed: int, rate: float) -> str:
        eta = f"eta {(total - ended) / rate:.0f}s" if rate else "eta ?"
        filled = WIDTH * ended // total if total else 0
        bar = f"[{'#' * filled}{'.' * (WIDTH - filled)}] " if self._live else ""
        parts = (f"{bar}{ended}/{total}", f"{rate:.0f} p/s", f"{failed} failed", eta)
        return fitted_parts(parts, columns(self._stream))

    def _write(self, text: str) -> None:
        self._stream.write(text)
        self._stream.flush()
