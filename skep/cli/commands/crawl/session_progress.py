"""Messages about the session of a spider on stderr: the `Progress` of `skep run`.

`spider_progress.py` draws the figures. This module only prints; it decides nothing.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from skep.cli.commands.crawl.spider_progress import SpiderProgress

if TYPE_CHECKING:
    from skep.spiders.driving.stats import Stats

STDERR = 2


class SessionProgress:
    """Implements `skep.spiders.session.ports.Progress`."""

    def __init__(self, bar: SpiderProgress, center: str, resumes: Callable[[str], str]) -> None:
        """`resumes` returns the command line that continues a run."""
        self._bar = bar
        self._center = center
        self._resumes = resumes

    def appends(self, file: Path) -> None:
        self._bar.note(f"{file} exists: items are appended; -O {file} overwrites it")

    def chosen(self, run: str, *, finished: bool) -> None:
        if finished:
            self._bar.note(f"run {run} has finished; writing missing items to the outputs")
        else:
            self._bar.note(f"run {run} · center {self._center}")

    def update(self, stats: Stats) -> None:
        self._bar.update(stats)

    def waits(self, reason: str) -> None:
        self._bar.note(f"waiting: {reason}")

    def interrupted(self, run: str, *, again: bool) -> None:
        """Write directly to stderr, because the stream of the bar may be inside a line."""
        if again:
            os.write(
                STDERR, f"\nstopped immediately; continue with: {self._resumes(run)}\n".encode()
            )
        else:
            os.write(STDERR, b"\npausing; once more ends it at once\n")

    def leaves_sinks(self) -> None:
        os.write(STDERR, b"\nnot waiting for the outputs; once more ends it at once\n")

    def ended(self) -> None:
        self._bar.end()
