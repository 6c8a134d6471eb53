"""The contract between an agent and a downloader.

The agent opens one downloader per run and closes it when the run is released or idle. It calls
`start` for many requests without waiting and gets each result through `done`. A failed download
is a `Fetched` whose outcome has a failure class: `start` never raises because of a host.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, runtime_checkable

import msgspec

from skep.archive.frames import Exchange
from skep.downloaders.proxy_counts import Tally
from skep.downloaders.session_state import SessionState
from skep.model.request import Outcome, Work
from skep.model.run import RunSettings


class Fetched(msgspec.Struct):
    """An outcome and, when bytes came, the finished WARC frames that keep them."""

    outcome: Outcome
    frames: bytes = b""
    #: The host that was asked first, "" = not known.
    host: str = ""
    #: When its last hop began, by the monotonic clock; 0 = not known.
    began: float = 0.0
    #: Between an engine and its content rules only: the page of which frames are made.
    exchange: Exchange | None = None


class Downloader(Protocol):
    """Executes the requests of one run."""

    def start(self, work: Work, done: Callable[[Fetched], None]) -> None:
        """Begin one download; `done` is called once, on the agent's event loop.

        Callable from the event loop only. After `close` it calls `done` with a failure.
        """

    @property
    def active(self) -> int:
        """Downloads that were started and have not ended."""

    async def close(self) -> None:
        """Abort what runs (as failures of class `lost`), free everything."""


@runtime_checkable
class Paced(Protocol):
    """A downloader that may ask a host more often than it is told to: for redirects."""

    def pace(self, site: str, spacing: float) -> None:
        """Keep so many seconds between two starts on this site; said before each of them."""


@runtime_checkable
class Recallable(Protocol):
    """A downloader that has a queue of its own, and can give back what waits in it."""

    def recall(self) -> None:
        """End as `lost` what has not begun; what has may go on. Callable from the event loop
        only, and only when nobody wants those requests from here any more."""


@runtime_checkable
class Lasting(Protocol):
    """A downloader with cookies and sessions, which are the run's own and outlive it."""

    @property
    def session_state(self) -> SessionState:
        """As of the last look, or of the end."""

    async def note_session_state(self) -> None:
        """Look anew; soon over, and never raises."""

    def inherit(self, session_state: SessionState) -> None:
        """From an earlier downloader of the run; before the first `start` only."""


@runtime_checkable
class Redialable(Protocol):
    """A downloader that can let go of the agent's line while that is dialled again."""

    @property
    def running(self) -> int:
        """Transfers that are on the line now."""

    def hold(self) -> None:
        """Start nothing until `resume`. Callable at any time."""

    def resume(self, trouble: str) -> None:
        """The line was dialled; or could not be, and `trouble` says why."""


@runtime_checkable
class RedialKind(Protocol):
    """A kind whose downloaders may ask for another line."""

    #: Set by the agent when its operator has said how to dial.
    redial: Callable[[], None] | None
    tally: Tally


class Kind(Protocol):
    """A kind of downloader, such as `http`: opens one for a run."""

    name: str
    schemes: tuple[str, ...]

    def open(self, run: str, settings: RunSettings) -> Downloader:
        """Called on the event loop; must not block."""
