"""The connections of one downloader: libcurl, cookies, sessions, redials.

Runs in the thread of a downloader; `hold` and `resume` are for the event loop's thread.
Everything that is opened here is closed here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from random import Random
from typing import Any

import msgspec
import pycurl

from skep.archive.frames import Exchange
from skep.downloaders.egress_policy import EgressPolicy
from skep.downloaders.libcurl.cookie_jar import cookies_in, put_cookies
from skep.downloaders.libcurl.egress_routes import EgressRoutes
from skep.downloaders.libcurl.request_headers import BadHeader, run_headers
from skep.downloaders.libcurl.request_queue import RequestQueue
from skep.downloaders.libcurl.slot import Slot, SlotOptions
from skep.downloaders.libcurl.socket_poller import Poller
from skep.downloaders.proxy_counts import Tally
from skep.downloaders.session_state import SessionIdentity, SessionState
from skep.model.run import RunSettings
from skep.runtime.clock import Clock

Keep = Callable[[Exchange], bytes]


class EngineOptions(msgspec.Struct, frozen=True):
    """The options of an engine."""

    clock: Clock
    egress: EgressPolicy
    #: Creates the frames; None = the receiver of the results creates them.
    keep: Keep | None
    #: Creates the frames of redirects that are followed.
    keep_hop: Keep
    #: Whether bodies are archived as received; called for each encoded body.
    as_received: Callable[[], bool]
    ca_file: str
    ca_path: str
    #: Maximum concurrent downloads and open connections.
    connections: int
    #: Used by this engine only: for the first proxy and the headers.
    rng: Random
    tally: Tally
    #: Requests a redial of the agent; called by the thread. None = not possible.
    redial: Callable[[], None] | None = None


class Connections(RequestQueue):
    """The resources of an engine."""

    def __init__(
        self, settings: RunSettings, options: EngineOptions, ready: Callable[[], None]
    ) -> None:
        super().__init__(ready)
        self._settings = settings
        self._options = options
        self._now = options.clock.monotonic
        self._body_limit = settings.body_limit
        #: Maximum concurrent downloads; 0 during a redial.
        self._room = options.connections
        self._free: list[Slot] = []
        self._running: set[Slot] = set()
        #: Only for runs with `exits` or `sessions`.
        self._routes: EgressRoutes | None = None
        self._multi: Any = None
        self._share: Any = None
        self._poller: Poller | None = None
        #: The session state of the run, as of the last update or of the end. Only one thread
        #: writes it: the event loop's before the first request, the engine's from then on.
        self.session_state = SessionState()
        self._to_inherit: SessionState | None = None
        self._identities: Sequence[SessionIdentity] = ()

    @property
    def running(self) -> int:
        """Active transfers."""
        return len(self._running)

    def hold(self) -> None:
        """Start nothing until `resume`."""
        self._room = 0

    def resume(self, trouble: str) -> None:
        """The redial has ended; `trouble` is "" or why it failed."""
        self.tell(partial(self._dialled, trouble))

    def inherit(self, session_state: SessionState) -> None:
        """Take over the state of an earlier downloader of the run; before the first request."""
        self.session_state = self._to_inherit = session_state
        self.tell(self._take_over)

    def note_session_state(self, then: Callable[[], None]) -> None:
        """Update `session_state`; the thread then calls `then`, unless it has ended."""
        self.tell(self._note)
        self.tell(then)

    # --- the thread ---

    def _take_over(self) -> None:
        given, self._to_inherit = self._to_inherit or SessionState(), None
        if self._share is not None:
            put_cookies(self._share, given.cookies)
        self._identities = given.visitors
        if self._routes is not None:
            self._routes.restore(self._identities)

    def _note(self) -> None:
        if self._to_inherit is not None:  # it ends before it started
            return
        cookies = [] if self._share is None else cookies_in(self._share)
        identities = self._identities if self._routes is None else self._routes.identities()
        self.session_state = SessionState(cookies, list(identities))

    def _dialled(self, trouble: str) -> None:
        """Implemented by the engine, which knows the active transfers."""
        raise NotImplementedError

    def _open(self) -> None:
        if self._settings.cookies:
            self._share = pycurl.CurlShare()
            self._share.setopt(pycurl.SH_SHARE, pycurl.LOCK_DATA_COOKIE)
        self._outgoing = run_headers({})
        self._bad_run = ""
        try:
            self._outgoing = run_headers(self._settings.headers)
        except BadHeader as error:
            self._bad_run = str(error)
        self._slot_options = self._new_options()
        self._connect()
        if self._settings.exits is not None or self._settings.sessions is not None:
            self._open_egress_routes()

    def _new_options(self) -> SlotOptions:
        return SlotOptions(
            egress=self._options.egress,
            outgoing=self._outgoing,
            time_limit=self._settings.time_limit,
            body_limit=self._body_limit,
            ca_file=self._options.ca_file,
            ca_path=self._options.ca_path,
            share=self._share,
            on_new_socket=self._on_new_socket,
            now=self._now,
            as_received=self._options.as_received,
            cookies=self._settings.cookies,
        )

    def _on_new_socket(self, fd: int, purpose: int) -> int:
        """Handles may outlive a poller."""
        return 0 if self._poller is None else self._poller.on_new_socket(fd, purpose)

    def _connect(self) -> None:
        self._multi = pycurl.CurlMulti()
        self._multi.setopt(pycurl.M_MAXCONNECTS, self._options.connections)
        self._poller = Poller(self._multi, self._now, self._wake_fd)
        self._wait = self._poller.wait

    def _reconnect(self) -> None:
        """Close every connection while no transfer is active; cookies stay."""
        for slot in self._free:
            slot.close()
        self._free.clear()
        self._disconnect()
        self._connect()

    def _disconnect(self) -> None:
        for part in (self._multi, self._poller):
            if part is not None:
                part.close()

    def _close(self) -> None:
        """Close everything; the handles of active transfers have been removed."""
        for slot in (*self._running, *self._free):
            slot.close()
        self._running.clear()
        self._free.clear()
        if self._routes is not None:
            self._routes.close()
        self._disconnect()
        if self._share is not None:
            self._share.close()
        self._unknot()

    def _unknot(self) -> None:
        """Delete references to this object. A run leaves a quarter of a megabyte, and the garbage
        collector of an agent, which counts objects, runs only once in 250 runs."""
        self._multi = self._poller = self._routes = None
        for name in ("_slot_options", "_wait"):  # missing if `_open` failed
            self.__dict__.pop(name, None)

    def _open_egress_routes(self) -> None:
        options = self._options
        self._routes = EgressRoutes(
            self._settings, self._slot_options, options.egress, options.rng, options.tally,
            self._plain_slot,
        )  # fmt: skip
        self._routes.restore(self._identities)
        if options.redial is not None:
            self._routes.redial = partial(self._ask_redial, options.redial)

    def _plain_slot(self) -> Slot:
        return self._free.pop() if self._free else Slot(self._slot_options, self._free)

    def _ask_redial(self, redial: Callable[[], None]) -> None:
        self._room = 0
        redial()
