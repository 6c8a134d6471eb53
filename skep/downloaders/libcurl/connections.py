"""The connections of one downloader: libcurl, cookies, sessions, and the line being dialled.

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
    """What an engine is given by its kind."""

    clock: Clock
    egress: EgressPolicy
    #: Makes the frames; None leaves it to whoever takes the results.
    keep: Keep | None
    #: Makes the frames of redirects that are followed.
    keep_hop: Keep
    #: Whether bodies are archived as they were received; asked for each that is encoded.
    as_received: Callable[[], bool]
    ca_file: str
    ca_path: str
    #: Downloads at the same time, and connections that are kept.
    connections: int
    #: Of this engine alone: which proxy is first, which headers.
    rng: Random
    tally: Tally
    #: Has the agent dial its line again; called by the thread. None = it cannot.
    redial: Callable[[], None] | None = None


class Connections(RequestQueue):
    """What an engine stands on."""

    def __init__(
        self, settings: RunSettings, options: EngineOptions, ready: Callable[[], None]
    ) -> None:
        super().__init__(ready)
        self._settings = settings
        self._options = options
        self._now = options.clock.monotonic
        self._body_limit = settings.body_limit
        #: Downloads that may run at the same time; 0 while the line is being dialled.
        self._room = options.connections
        self._free: list[Slot] = []
        self._running: set[Slot] = set()
        #: Only runs with exits or sessions have it.
        self._routes: EgressRoutes | None = None
        self._multi: Any = None
        self._share: Any = None
        self._poller: Poller | None = None
        #: What is the run's own, as of the last look or of the end. One thread writes it at a
        #: time: the event loop's before the first request, the other from then on.
        self.session_state = SessionState()
        self._to_inherit: SessionState | None = None
        self._visitors: Sequence[SessionIdentity] = ()

    @property
    def running(self) -> int:
        """Transfers that are on the line now."""
        return len(self._running)

    def hold(self) -> None:
        """Start nothing until `resume`."""
        self._room = 0

    def resume(self, trouble: str) -> None:
        """The line was dialled; or could not be, and `trouble` says why."""
        self.tell(partial(self._dialled, trouble))

    def inherit(self, session_state: SessionState) -> None:
        """From an earlier downloader of the run; before the first request."""
        self.session_state = self._to_inherit = session_state
        self.tell(self._take_over)

    def note_session_state(self, then: Callable[[], None]) -> None:
        """Have `belongings` looked at anew; the thread calls `then`, unless it has ended."""
        self.tell(self._note)
        self.tell(then)

    # --- the thread ---

    def _take_over(self) -> None:
        given, self._to_inherit = self._to_inherit or SessionState(), None
        if self._share is not None:
            put_cookies(self._share, given.cookies)
        self._visitors = given.visitors
        if self._routes is not None:
            self._routes.restore(self._visitors)

    def _note(self) -> None:
        if self._to_inherit is not None:  # it ends before it began
            return
        cookies = [] if self._share is None else cookies_in(self._share)
        visitors = self._visitors if self._routes is None else self._routes.identities()
        self.session_state = SessionState(cookies, list(visitors))

    def _dialled(self, trouble: str) -> None:
        """The engine knows what runs."""
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
        """Handles live longer than a poller does."""
        return 0 if self._poller is None else self._poller.on_new_socket(fd, purpose)

    def _connect(self) -> None:
        self._multi = pycurl.CurlMulti()
        self._multi.setopt(pycurl.M_MAXCONNECTS, self._options.connections)
        self._poller = Poller(self._multi, self._now, self._wake_fd)
        self._wait = self._poller.wait

    def _reconnect(self) -> None:
        """Nothing runs: let every connection go; cookies stay."""
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
        """Everything that ran has been taken off."""
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
        """Let go of whatever knows this line. A run leaves a quarter of a megabyte, and the
        collector of an agent, which goes by numbers of objects, comes by once in 250 runs."""
        self._multi = self._poller = self._routes = None
        for name in ("_slot_options", "_wait"):  # not there when it could not be opened
            self.__dict__.pop(name, None)

    def _open_egress_routes(self) -> None:
        options = self._options
        self._routes = EgressRoutes(
            self._settings, self._slot_options, options.egress, options.rng, options.tally,
            self._plain_slot,
        )  # fmt: skip
        self._routes.restore(self._visitors)
        if options.redial is not None:
            self._routes.redial = partial(self._ask_redial, options.redial)

    def _plain_slot(self) -> Slot:
        return self._free.pop() if self._free else Slot(self._slot_options, self._free)

    def _ask_redial(self, redial: Callable[[], None]) -> None:
        self._room = 0
        redial()
