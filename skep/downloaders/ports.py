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
    """An outcome and, if bytes were received, the WARC frames with them."""

    outcome: Outcome
    frames: bytes = b""
    #: The host of the request, before redirects; "" = not known.
    host: str = ""
    #: When its last hop started, by the monotonic clock; 0 = not known.
    began: float = 0.0
    #: Only between an engine and its content rules: the page for the frames.
    exchange: Exchange | None = None


class Downloader(Protocol):
    """Executes the requests of one run."""

    def start(self, work: Work, done: Callable[[Fetched], None]) -> None:
        """Start one download; `done` is called once, on the agent's event loop.

        Callable from the event loop only. After `close` it calls `done` with a failure.
        """

    @property
    def active(self) -> int:
        """Downloads that were started and have not ended."""

    async def close(self) -> None:
        """Abort active downloads (as failures of class `lost`) and free everything."""


@runtime_checkable
class Paced(Protocol):
    """A downloader that may send more requests to a host than it is given: for redirects."""

    def pace(self, site: str, spacing: float) -> None:
        """Set the minimum seconds between two starts on this host; called before each of them."""


@runtime_checkable
class Recallable(Protocol):
    """A downloader with its own queue, which can return the requests in it."""

    def recall(self) -> None:
        """End requests that have not started as `lost`; others may continue. Callable from the
        event loop only, and only when the agent no longer needs these requests."""


@runtime_checkable
class Lasting(Protocol):
    """A downloader with cookies and sessions, which belong to the run and outlive it."""

    @property
    def session_state(self) -> SessionState:
        """As of the last update, or of the end."""

    async def note_session_state(self) -> None:
        """Update it; takes little time and never raises."""

    def inherit(self, session_state: SessionState) -> None:
        """Take over the state of an earlier downloader; only before the first `start`."""


@runtime_checkable
class Redialable(Protocol):
    """A downloader that can stop using the connection while the agent redials."""

    @property
    def running(self) -> int:
        """Active transfers."""

    def hold(self) -> None:
        """Start nothing until `resume`. Callable at any time."""

    def resume(self, trouble: str) -> None:
        """The redial has ended; `trouble` is "" or why it failed."""


@runtime_checkable
class RedialKind(Protocol):
    """A kind whose downloaders may request a redial."""

    #: Set by the agent if its operator configured a redial command.
    redial: Callable[[], None] | None
    tally: Tally


class Kind(Protocol):
    """A kind of downloader, such as `http`: opens one for a run."""

    name: str
    schemes: tuple[str, ...]

    def open(self, run: str, settings: RunSettings) -> Downloader:
        """Called on the event loop; must not block."""
