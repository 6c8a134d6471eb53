"""Assembles the logs of one center: intake, its own lines, search, merging, retention, export.

Run once when a center is built; `center/loops.py` runs the steps. Nothing starts here.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from logging import INFO
from math import inf
from pathlib import Path

from skep.center.foundation import Foundation
from skep.center.metrics import Metrics
from skep.logs.center.exporting import LogExporter, in_thread
from skep.logs.center.file_feeds import FileFeeds
from skep.logs.center.intake import IntakeFigures, IntakeRate, LogIntake
from skep.logs.center.merging import PieceMerger
from skep.logs.center.recorder import NEWEST, LogRecorder
from skep.logs.center.retention import LogBudget, LogRetention
from skep.logs.center.search import LogSearch
from skep.logs.export import FileExport, LineExport, StreamExport
from skep.logs.line_format import make_entry
from skep.model.logs import LogEntry, LogSource, LogSourceKind
from skep.runtime.clock import Clock
from skep.settings import LogSettings
from skep.store.ports.logs import LogPieces

#: Seconds for the last lines of a center that stops.
CLOSE_SECONDS = 2.0
STDOUT = "stdout"
#: Maximum number of searches at the same time.
READERS = 4
#: Seconds for which the newest position counts as known.
POSITION_SECONDS = 0.2


@dataclass(slots=True)
class LogAssembly:
    """The logs of one center."""

    settings: LogSettings
    own: LogSource
    pieces: LogPieces
    intake: LogIntake
    recorder: LogRecorder
    search: LogSearch
    merger: PieceMerger
    retention: LogRetention
    #: Exports of all lines, by name.
    exporters: dict[str, LogExporter]
    #: The output of child processes.
    feeds: FileFeeds
    clock: Clock
    #: Searches that run now; others wait.
    readers: asyncio.Semaphore
    #: Lines that agents dropped before they could send them, since their start.
    agent_drops: dict[str, int] = field(default_factory=dict)
    #: Figures that the metrics show already.
    _shown: dict[str, int] = field(default_factory=dict)
    _looking: asyncio.Lock = field(default_factory=asyncio.Lock)
    _looked_at: float = -inf
    _position: int = 0

    def put(self, entry: LogEntry) -> None:
        """A line of this center; from any thread."""
        if self.settings.store:
            self.recorder.put(self.own, NEWEST, entry)

    def wrote(self, source: LogSource, token: int, text: str) -> None:
        """Store the output of user code that this center runs."""
        if self.settings.store:
            for line in filter(str.strip, text.splitlines()):
                self.recorder.put(source, token, make_entry(self.clock.now(), INFO, line))

    def note_dropped(self, agent: str, lines: int) -> None:
        """Note the counts that an agent reports about itself."""
        if lines or agent in self.agent_drops:
            self.agent_drops[agent] = lines

    async def position(self) -> int:
        """The position of the newest line, asked of the store once for all that wait."""
        async with self._looking:
            if self.clock.monotonic() - self._looked_at >= POSITION_SECONDS:
                self._position = await self.search.position()
                self._looked_at = self.clock.monotonic()
            return self._position

    async def keep_budget(self, metrics: Metrics) -> None:
        """Delete what is over a limit, and show the figures."""
        await self.retention.step()
        metrics.log_bytes.set(sum(one.bytes for one in await self.pieces.stored()))
        for name, count in _counts(self.intake.figures, self.recorder).items():
            metrics.log_lines.labels(name).inc(count - self._shown.get(name, 0))
            self._shown[name] = count

    async def close(self) -> None:
        await self.recorder.close(CLOSE_SECONDS)


def _counts(figures: IntakeFigures, recorder: LogRecorder) -> dict[str, int]:
    return {
        "stored": figures.stored,
        "duplicate": figures.duplicates,
        "stale": figures.stale,
        "dropped": figures.dropped + recorder.dropped,
        "repaired": figures.repaired,
    }


def build_logs(base: Foundation, check_disk: Callable[[], None]) -> LogAssembly:
    """Build all parts; nothing is started."""
    settings, pieces, clock = base.settings.logs, base.store.logs, base.clock
    rate = IntakeRate(float(settings.agent_rate), float(settings.agent_burst))
    intake = LogIntake(pieces, clock, rate, check_disk)
    search = LogSearch(pieces, clock)
    budget = LogBudget(settings.bytes, settings.agent_bytes, settings.age)
    return LogAssembly(
        settings,
        LogSource(LogSourceKind.CENTER, base.name),
        pieces,
        intake,
        LogRecorder(intake, pieces),
        search,
        PieceMerger(pieces, clock),
        LogRetention(pieces, clock, budget),
        _exporters(settings, search, Path(base.settings.data)),
        FileFeeds(
            Path(base.settings.data).absolute() / "runs",
            base.name,
            intake if settings.store else None,
            clock,
        ),
        clock,
        asyncio.Semaphore(READERS),
    )


def _exporters(settings: LogSettings, search: LogSearch, data: Path) -> dict[str, LogExporter]:
    """Each has its own position: one that is unavailable does not delay the other."""
    found: dict[str, LogExporter] = {}
    if settings.export:
        write = in_thread(_export(settings))
        found["export"] = LogExporter(search, write, data / "logs.exported")
    if settings.forward:
        # Importing its HTTP client here keeps other starts fast.
        from skep.logs.center.bulk_export import BulkExport

        send = BulkExport(settings.forward).send
        found["forward"] = LogExporter(search, send, data / "logs.forwarded")
    return found


def _export(settings: LogSettings) -> LineExport:
    if settings.export == STDOUT:
        return StreamExport(sys.stdout.buffer)
    return FileExport(Path(settings.export), settings.export_bytes, settings.export_files)
