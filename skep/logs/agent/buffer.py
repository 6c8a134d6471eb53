"""The log lines of all sources of one agent: a spool for each, under one budget together.

Runs on agents, in a thread. When all spools together exceed the budget, the largest one deletes its
oldest lines, so a source that floods loses its own lines. Lines of an earlier process are sent
first.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from threading import Lock

import msgspec

from skep.logs.agent.spool import Spool
from skep.logs.line_format import encode_entry
from skep.model.logs import LogBatch, LogEntry, LogSource
from skep.runtime.files import read_or_none, write_durably

_FACTS = "source.json"


class _SpoolFacts(msgspec.Struct):
    """What a folder holds."""

    source: LogSource
    token: int


@dataclass(frozen=True, slots=True)
class BufferBudget:
    """Bytes on disk."""

    each: int = 16 * 2**20
    total: int = 256 * 2**20


class LogBuffer:
    """`open` first. Spools are found by source and token."""

    def __init__(self, folder: Path, budget: BufferBudget) -> None:
        self._folder = folder
        self._budget = budget
        self._lock = Lock()
        self._spools: dict[tuple[LogSource, int], Spool] = {}
        #: Spools of an earlier process: nothing is added to them, and each is deleted when its
        #: lines are sent.
        self._left: set[tuple[LogSource, int]] = set()
        #: Dropped lines of spools that were deleted.
        self._dropped = 0
        #: Lines that centers refused, since another process holds the source by now.
        self.refused = 0

    @property
    def size(self) -> int:
        """Bytes on disk."""
        return sum(spool.size for spool in self._all())

    @property
    def dropped(self) -> int:
        """Lines dropped since the start."""
        return self._dropped + sum(spool.dropped for spool in self._all())

    @property
    def waiting(self) -> int:
        """Lines that no center has stored yet."""
        return sum(spool.waiting for spool in self._all())

    def _all(self) -> list[Spool]:
        return list(self._spools.values())

    def open(self) -> None:
        """Find what an earlier process left. A folder without its facts is left alone."""
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        for folder in sorted(path for path in self._folder.iterdir() if path.is_dir()):
            facts = _read_facts(folder)
            if facts is not None:
                self._opened(facts.source, facts.token, folder)
                self._left.add((facts.source, facts.token))
                self._forget_if_sent(facts.source, facts.token)

    def append(self, source: LogSource, token: int, entries: list[LogEntry]) -> None:
        """Raises OSError when they cannot be written; they are then dropped and counted."""
        self._spool(source, token).append([encode_entry(entry) for entry in entries])
        while self.size > self._budget.total:
            if not max(self._all(), key=lambda spool: spool.size).drop_oldest():
                return

    def _spool(self, source: LogSource, token: int) -> Spool:
        with self._lock:
            found = self._spools.get((source, token))
            self._left.discard((source, token))
            if found is not None:
                return found
            folder = self._folder / _folder_name(source, token)
            folder.mkdir(mode=0o700, exist_ok=True)
            write_durably(folder / _FACTS, msgspec.json.encode(_SpoolFacts(source, token)))
            return self._opened(source, token, folder)

    def _opened(self, source: LogSource, token: int, folder: Path) -> Spool:
        spool = Spool(folder, source, token, self._budget.each)
        spool.open()
        self._spools[source, token] = spool
        return spool

    def batches(self, limit: int) -> Iterator[LogBatch]:
        """One batch of each source that has lines; of several tokens the oldest first, since a
        center refuses an older token once it has seen a newer one."""
        oldest: dict[LogSource, Spool] = {}
        for spool in sorted(self._all(), key=lambda spool: spool.token):
            if spool.waiting:
                oldest.setdefault(spool.source, spool)
        for spool in oldest.values():
            batch = spool.batch(limit)
            if batch is not None:
                yield batch

    def acknowledge(self, batch: LogBatch, next_offset: int) -> None:
        """The answer of a center to a batch."""
        spool = self._spools.get((batch.source, batch.token))
        if spool is not None:
            spool.acknowledge(next_offset)
            self._forget_if_sent(batch.source, batch.token)

    def _forget_if_sent(self, source: LogSource, token: int) -> None:
        if (source, token) in self._left:
            self.end(source, token)

    def refuse(self, batch: LogBatch) -> None:
        """A center has a newer token of this source: no center takes these lines any more."""
        spool = self._spools.get((batch.source, batch.token))
        if spool is not None:
            self.refused += spool.waiting
            self._forget(spool)

    def end(self, source: LogSource, token: int) -> bool:
        """Call it when no more lines will come. Returns whether all are stored and the files
        deleted."""
        spool = self._spools.get((source, token))
        if spool is not None and spool.waiting:
            return False
        if spool is not None:
            self._forget(spool)
        return True

    def _forget(self, spool: Spool) -> None:
        with self._lock:
            self._dropped += spool.dropped
            del self._spools[spool.source, spool.token]
            self._left.discard((spool.source, spool.token))
            spool.delete()

    def close(self) -> None:
        """Sync and close; what waits stays on disk."""
        for spool in self._all():
            spool.close()


def _folder_name(source: LogSource, token: int) -> str:
    key = msgspec.json.encode([source, token])
    return f"{source.kind}-{token}-{hashlib.sha256(key).hexdigest()[:32]}"


def _read_facts(folder: Path) -> _SpoolFacts | None:
    data = read_or_none(folder / _FACTS)
    try:
        return None if data is None else msgspec.json.decode(data, type=_SpoolFacts)
    except msgspec.MsgspecError:
        return None
