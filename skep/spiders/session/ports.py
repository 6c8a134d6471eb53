"""What a session needs from its caller: a place to report to, and a way to get a center back.

The command line implements both. Nothing here is called from another thread.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, Protocol

from skep.spiders.driving.stats import Stats

#: Starts the center again whenever it is gone; runs beside the session until it is cancelled.
BringBack = Callable[[], Coroutine[Any, Any, None]]


class Progress(Protocol):
    """Hears what a session does. No method waits or raises."""

    def appends(self, file: Path) -> None:
        """The items of a new run are appended to a file that has content already."""

    def chosen(self, run: str, *, finished: bool) -> None:
        """The run is known. `finished`: it was finished before, and only its sinks get what they
        lack."""

    def update(self, stats: Stats) -> None:
        """Figures of the run so far, several times a second."""

    def waits(self, reason: str) -> None:
        """The run makes no progress, for this reason. Told once for each reason."""

    def interrupted(self, run: str, *, again: bool) -> None:
        """A signal has come and the run pauses, or (`again`) the process ends when this returns.
        Called inside a signal handler."""

    def leaves_sinks(self) -> None:
        """A signal has come while the sinks get their last items: no sink that is away is waited
        for. Called inside a signal handler."""

    def ended(self) -> None:
        """No more updates come: the sinks have what they get."""
