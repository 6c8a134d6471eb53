"""One downloader per run: opened for its first block, closed when unused for a time.

Runs on the agent's event loop. A downloader that cannot be opened is replaced by a `Refusal`, so
that every request of an unknown kind ends with a reason in its log instead of waiting in the agent.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from math import inf

from skep.agent.work.run_session_files import RunSessionFiles
from skep.downloaders.ports import Downloader, Fetched, Kind, Lasting, Recallable, Redialable
from skep.model.failures.failure_class import FailureClass
from skep.model.request import Outcome, Work
from skep.model.run import RunSettings

log = logging.getLogger(__name__)

#: Maximum downloaders without work: each has a thread and a dozen descriptors, and a job that
#: fires each second would have hundreds of them.
RESTING = 64


class Refusal:
    """Ends every request at once, as a configuration error."""

    active = 0

    def __init__(self, detail: str) -> None:
        self._detail = detail

    def start(self, work: Work, done: Callable[[Fetched], None]) -> None:
        done(Fetched(Outcome(work.id, failure=FailureClass.CODE, detail=self._detail)))

    async def close(self) -> None:
        """Nothing to close."""


def start(downloader: Downloader, run: str, work: Work, done: Callable[[Fetched], None]) -> None:
    """Start a download; if the downloader raises, the request fails with the reason."""
    try:
        downloader.start(work, done)
    except Exception as error:
        log.exception("the downloader of run %s failed", run)
        detail = f"{type(downloader).__name__} could not start: {error}"
        done(Fetched(Outcome(work.id, failure=FailureClass.CODE, detail=detail)))


@dataclass(slots=True)
class _Opened:
    downloader: Downloader
    settings: RunSettings
    used_at: float
    #: When its cookies were last checked, and whether it was busy then.
    noted_at: float = -inf
    was_busy: bool = False


class RunDownloaders:
    """The open downloaders of an agent, by run."""

    def __init__(
        self,
        kinds: Mapping[str, Kind],
        monotonic: Callable[[], float],
        session_files: RunSessionFiles | None = None,
    ) -> None:
        self._kinds = kinds
        self._session_files = session_files
        self._monotonic = monotonic
        self._open: dict[str, _Opened] = {}
        #: Replaced by one with newer settings, and still busy.
        self._retired: list[Downloader] = []
        #: Called when a downloader cannot be opened, or has died.
        self.on_trouble: Callable[[str], None] = _no_listener
        #: A redial is under way: nothing may be started.
        self.held = False

    @property
    def open_connections(self) -> int:
        """Number of downloads that use the line now."""
        return sum(
            one.running if isinstance(one, Redialable) else one.active for one in self._all()
        )

    def hold(self) -> None:
        """Start nothing until `resume`."""
        self.held = True
        for one in self._all():
            if isinstance(one, Redialable):
                one.hold()

    def resume(self, trouble: str) -> None:
        """The line was redialled; or not, and `trouble` gives the reason."""
        self.held = False
        for one in self._all():
            if isinstance(one, Redialable):
                one.resume(trouble)

    def _all(self) -> list[Downloader]:
        return [*(opened.downloader for opened in self._open.values()), *self._retired]

    def __len__(self) -> int:
        return len(self._open)

    def of(self, run: str, settings: RunSettings) -> Downloader:
        """The run's downloader, opened if needed."""
        opened = self._open.get(run)
        if opened is not None and opened.settings != settings:
            self._retired.append(opened.downloader)
            opened = None
        if opened is None:
            opened = _Opened(self._begin(run, settings), settings, 0.0)
            self._open[run] = opened
            if self.held and isinstance(opened.downloader, Redialable):
                opened.downloader.hold()
        opened.used_at = self._monotonic()
        return opened.downloader

    def _begin(self, run: str, settings: RunSettings) -> Downloader:
        kind = self._kinds.get(settings.downloader)
        if kind is None:
            offered = ", ".join(sorted(self._kinds)) or "none"
            return Refusal(
                f"this agent has no downloader {settings.downloader!r}; it offers: {offered}"
            )
        try:
            return self._with_session_state(run, kind.open(run, settings))
        except Exception as error:
            log.exception("cannot open downloader %s for run %s", settings.downloader, run)
            trouble = f"downloader {settings.downloader!r} could not be opened: {error}"
            self.on_trouble(f"run {run}: {trouble}")
            return Refusal(trouble)

    def _with_session_state(self, run: str, downloader: Downloader) -> Downloader:
        known = self._session_files.of(run) if self._session_files is not None else None
        if known is not None and isinstance(downloader, Lasting):
            downloader.inherit(known)
        return downloader

    async def note(self) -> None:
        """Store the cookies and sessions of all runs that were active since the last call."""
        now = self._monotonic()
        for run, opened in list(self._open.items()):
            busy = opened.downloader.active > 0
            if busy or opened.was_busy or opened.used_at >= opened.noted_at:
                opened.noted_at, opened.was_busy = now, busy
                await self._note(run, opened)

    async def _note(self, run: str, opened: _Opened) -> None:
        if self._session_files is not None and isinstance(opened.downloader, Lasting):
            await opened.downloader.note_session_state()
            if self._open.get(run) is opened:
                self._keep(run, opened.downloader)

    def _keep(self, run: str, downloader: Downloader) -> None:
        if self._session_files is not None and isinstance(downloader, Lasting):
            self._session_files.keep(run, downloader.session_state)

    def discard(self, run: str) -> None:
        """It died: the next work of the run opens a new one."""
        if opened := self._open.pop(run, None):
            log.error("the downloader of run %s died; opening another", run)
            self.on_trouble(f"the downloader of run {run} died")
            self._retired.append(opened.downloader)

    async def close_idle(self, idle: float) -> int:
        """Close downloaders that were not used for `idle` seconds; returns how many."""
        for run in self._stale(idle):
            if opened := self._open.get(run):
                await self._note(run, opened)
        # A downloader that opens from here on has the stored state: there is no await in between.
        stale = self._stale(idle)
        retired = [one for one in self._retired if not one.active]
        self._retired = [one for one in self._retired if one.active]
        await _close_all([*(self._open.pop(run).downloader for run in stale), *retired])
        return len(stale)

    def _stale(self, idle: float) -> list[str]:
        """Runs that are idle for too long, and of too many idle ones the longest idle."""
        now = self._monotonic()
        resting = sorted(
            (opened.used_at, run)
            for run, opened in self._open.items()
            if not opened.downloader.active
        )
        over = len(resting) - RESTING
        return [
            run for nth, (used_at, run) in enumerate(resting) if nth < over or now - used_at >= idle
        ]

    def recall(self, run: str | None) -> None:
        """Drop unstarted requests, of one run or of all."""
        chosen = [opened for name, opened in self._open.items() if run in {None, name}]
        for one in [*(opened.downloader for opened in chosen), *([] if run else self._retired)]:
            if isinstance(one, Recallable):
                one.recall()

    async def close(self, run: str) -> None:
        """The run was released: abort what it does."""
        if opened := self._open.pop(run, None):
            await _close_all([opened.downloader])

    async def close_all(self) -> None:
        """The agent ends: abort everything."""
        closing = {run: opened.downloader for run, opened in self._open.items()}
        retired, self._open, self._retired = self._retired, {}, []
        await _close_all([*closing.values(), *retired])
        for run, downloader in closing.items():
            self._keep(run, downloader)


def _no_listener(_trouble: str) -> None:
    """No listener."""


async def _close_all(downloaders: Iterable[Downloader]) -> None:
    results = await asyncio.gather(*(one.close() for one in downloaders), return_exceptions=True)
    for result in results:
        if isinstance(result, BaseException):
            log.error("cannot close a downloader: %s", result)
