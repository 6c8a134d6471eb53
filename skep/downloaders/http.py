"""The `http` kind of downloader: HTTP/1.1 and HTTP/2 through libcurl. Runs on agents.

Each run has its own thread, connections, DNS cache and cookie jar. This part runs on the event
loop and must never block it: results arrive in batches.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from random import Random

from skep.archive.frames import FrameMaker
from skep.downloaders.content_children import ContentChildren, Finish
from skep.downloaders.egress_policy import EgressPolicy
from skep.downloaders.libcurl.connections import EngineOptions, Keep
from skep.downloaders.libcurl.engine import CurlEngine
from skep.downloaders.libcurl.request_queue import lost_outcome
from skep.downloaders.libcurl.transfer import Done
from skep.downloaders.ports import Fetched
from skep.downloaders.proxies import parse_proxy
from skep.downloaders.proxy_counts import Tally
from skep.downloaders.session_state import SessionState
from skep.model.content_rules import ContentRules
from skep.model.downloader_kinds import HTTP
from skep.model.request import Work
from skep.model.run import RunSettings
from skep.runtime.clock import Clock

log = logging.getLogger(__name__)

CONNECTIONS = 256
#: Seconds for the thread to read its cookies.
NOTE_SECONDS = 2.0


class HttpDownloader:
    """Downloads the requests of one run."""

    def __init__(
        self,
        run: str,
        settings: RunSettings,
        options: EngineOptions,
        loop: asyncio.AbstractEventLoop,
        cutter: Callable[[Finish], ContentChildren] | None = None,
    ) -> None:
        self._loop = loop
        self._cutter = cutter(self._finish) if cutter else None
        self._active = 0
        self._closed = False
        self._engine = CurlEngine(run, settings, options, self._from_thread)

    @property
    def active(self) -> int:
        return self._active

    @property
    def running(self) -> int:
        """Active transfers."""
        return self._engine.running

    def hold(self) -> None:
        self._engine.hold()

    def resume(self, trouble: str) -> None:
        if not self._closed:
            self._engine.resume(trouble)

    @property
    def refused(self) -> int:
        """Downloads that ended because the egress policy refused the address."""
        return self._engine.refused

    def start(self, work: Work, done: Done) -> None:
        if self._closed:
            self._loop.call_soon(done, Fetched(lost_outcome(work)))
            return
        self._active += 1
        self._engine.submit(work, done)

    def recall(self) -> None:
        if not self._closed:
            self._engine.recall()

    def pace(self, site: str, spacing: float) -> None:
        self._engine.pace(site, spacing)

    @property
    def session_state(self) -> SessionState:
        return self._engine.session_state

    def inherit(self, session_state: SessionState) -> None:
        self._engine.inherit(session_state)

    async def note_session_state(self) -> None:
        if self._closed:
            return
        noted = asyncio.Event()
        self._engine.note_session_state(partial(self._call_on_loop, noted.set))
        with suppress(TimeoutError):  # a thread that has ended stored its state before
            async with asyncio.timeout(NOTE_SECONDS):
                await noted.wait()

    async def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        await self._loop.run_in_executor(None, self._engine.stop)
        self._deliver()
        if self._cutter is not None:
            await self._cutter.close()
            self._cutter = None

    def _from_thread(self) -> None:
        """Called by the engine's thread, once per batch."""
        self._call_on_loop(self._deliver)

    def _call_on_loop(self, call: Callable[[], None]) -> None:
        try:
            self._loop.call_soon_threadsafe(call)
        except RuntimeError:
            log.warning("the event loop was closed before its downloader")

    def _deliver(self) -> None:
        for done, fetched in self._engine.take_finished():
            if self._cutter is None or fetched.exchange is None:
                self._finish(done, fetched)
            else:
                told = partial(_with_download, done, fetched)
                self._cutter.take(told, fetched.outcome, fetched.exchange)

    def _finish(self, done: Done, fetched: Fetched) -> None:
        self._active -= 1
        try:
            done(fetched)
        except Exception:
            # An error in one callback must not affect the other results of the batch.
            log.exception("the receiver of a download failed")


def _with_download(done: Done, before: Fetched, fetched: Fetched) -> None:
    """Keep the host, the start time and the records of redirects of the page from which content
    rules made a new result."""
    fetched.host, fetched.began = before.host, before.began
    if fetched.frames:
        fetched.frames += before.frames
        fetched.outcome.length = len(fetched.frames)
    done(fetched)


def _proxy_places(settings: RunSettings) -> list[str]:
    """The user who wrote the settings of the run named its proxies."""
    proxies = settings.exits.proxies if settings.exits else ()
    return [parse_proxy(url).place for url in proxies]


class HttpKind:
    """Opens a downloader for a run."""

    traits = HTTP
    name = HTTP.name
    schemes = HTTP.schemes

    def __init__(
        self,
        clock: Clock,
        rng: Random,
        egress: EgressPolicy,
        *,
        ca_file: str = "",
        connections: int = CONNECTIONS,
        keep: Keep | None = None,
        as_received: Callable[[], bool] = lambda: True,
    ) -> None:
        """`ca_file` replaces the machine's certificates; `keep` replaces the WARC frames;
        `as_received`: whether readers of the frames decode bodies themselves."""
        self._clock = clock
        self._rng = rng
        self._egress = egress
        self._connections = connections
        self._keep = keep
        self._as_received = as_received
        self.tally = Tally()
        #: Requests a redial of the agent; None = not possible.
        self.redial: Callable[[], None] | None = None
        paths = ssl.get_default_verify_paths()
        self._ca_file = ca_file or paths.cafile or ""
        self._ca_path = "" if ca_file else paths.capath or ""

    def open(self, run: str, settings: RunSettings) -> HttpDownloader:
        keep = self._keep or self._new_keep()
        options = EngineOptions(
            clock=self._clock,
            egress=self._egress.naming((*settings.named, *_proxy_places(settings))),
            keep=None if settings.content else keep,
            keep_hop=keep,
            # Rules apply to the decoded body.
            as_received=(lambda: False) if settings.content else self._as_received,
            ca_file=self._ca_file,
            ca_path=self._ca_path,
            connections=self._connections,
            rng=Random(self._rng.getrandbits(128)),  # noqa: S311 - the order of proxies, not secrets
            tally=self.tally,
            redial=self._on_loop(self.redial),
        )
        loop = asyncio.get_running_loop()
        return HttpDownloader(run, settings, options, loop, self._new_cutter(settings.content))

    @staticmethod
    def _on_loop(call: Callable[[], None] | None) -> Callable[[], None] | None:
        """The same call, for other threads."""
        if call is None:
            return None
        loop = asyncio.get_running_loop()

        def from_thread() -> None:
            loop.call_soon_threadsafe(call)

        return from_thread

    def _new_keep(self) -> Keep:
        """A frame maker and its random source belong to one thread."""
        return FrameMaker(self._clock, self._new_rng()).exchange_frames

    def _new_cutter(self, rules: ContentRules | None) -> Callable[[Finish], ContentChildren] | None:
        if rules is None:
            return None
        return lambda finish: ContentChildren(rules, self._clock, self._new_rng(), finish)

    def _new_rng(self) -> Random:
        return Random(self._rng.getrandbits(128))  # noqa: S311 - record ids, not secrets
