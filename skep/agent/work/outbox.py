"""Reports on the agent's disk that no center has taken yet: one file each, oldest sent first.

Bounded: when it is full the oldest report is dropped, counted and logged. It survives a restart. A
damaged file, or a report of another identity, is set aside and never stops the agent. Every method
blocks on the disk, so the agent calls them in a thread; a lock serializes those threads.
"""

from __future__ import annotations

import logging
import struct
import zlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from time import monotonic, time

import msgspec

from skep.model.block import Held
from skep.runtime.files import read_or_none, remove, write_durably
from skep.wire.messages import Report

log = logging.getLogger(__name__)

#: magic, length of the index, crc32 of index and report
_HEAD = struct.Struct(">4sII")
_MAGIC = b"SKO1"
#: Maximum damaged files that are kept for inspection.
_TORN_KEPT = 16
WHOLE, PARTIAL, TORN, FOREIGN = ".report", ".partial", ".torn", ".foreign"


class _Index(msgspec.Struct, array_like=True):
    """Facts about a report, readable without decoding it."""

    size: int
    results: int
    held: list[Held]
    #: The agent that created it; "" in files of older versions.
    agent: str = ""


@dataclass(slots=True)
class _Entry:
    """One file. Named `.partial` when an earlier part of its blocks is missing."""

    path: Path
    size: int
    results: int
    held: tuple[Held, ...]
    #: When it was written, on the outbox's clock.
    at: float


@dataclass(frozen=True, slots=True)
class StoredReport:
    """A report read back. `cut_short`: leases whose last part this is although an earlier one is
    missing, so that they must be given back once it is delivered."""

    path: Path
    report: Report
    cut_short: tuple[Held, ...] = ()


class Outbox:
    """A queue of reports in a folder, at most `limit` bytes of them."""

    def __init__(
        self, folder: Path, limit: int, agent: str, monotonic: Callable[[], float] = monotonic
    ) -> None:
        """Reports of other agents than `agent` are set aside: no center accepts them from it."""
        self._agent = agent
        self._monotonic = monotonic
        self._folder = folder
        self._limit = limit
        self._lock = Lock()
        self._entries: list[_Entry] = []
        self._gaps: set[Held] = set()
        self._next = 1
        self.bytes = 0
        #: Results dropped because the outbox was full, since the start.
        self.dropped = 0
        #: Files that could not be read, since the start.
        self.torn = 0
        #: Results of another identity, since the start.
        self.foreign = 0

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def results(self) -> int:
        """Results that wait here."""
        return sum(entry.results for entry in tuple(self._entries))

    @property
    def age(self) -> float:
        """Age of the oldest report in seconds; 0 when there is none."""
        oldest = min((entry.at for entry in tuple(self._entries)), default=None)
        return 0.0 if oldest is None else max(self._monotonic() - oldest, 0.0)

    def held(self) -> set[Held]:
        """Leases whose results wait here; the agent keeps renewing them."""
        return {held for entry in tuple(self._entries) for held in entry.held}

    def open(self) -> None:
        """Find the reports of earlier processes of the agent."""
        self._folder.mkdir(parents=True, exist_ok=True)
        with self._lock:
            for path in sorted(self._folder.iterdir()):
                if path.suffix in {WHOLE, PARTIAL}:
                    self._adopt(path)
                elif path.suffix == ".new":
                    path.unlink(missing_ok=True)

    def _adopt(self, path: Path) -> None:
        self._next = max(self._next, int(path.stem) + 1 if path.stem.isdigit() else 1)
        data = read_or_none(path)
        index = _index_of(data) if data is not None else None
        if data is None or index is None:
            self._set_aside(path)
            return
        if (maker := index.agent or _maker_of(data)) != self._agent:
            self._set_foreign_aside(path, maker, index.results)
            return
        at = self._monotonic() - _seconds_since_written(path)
        entry = _Entry(path, len(data), index.results, tuple(index.held), at)
        self._append(entry)
        if self.torn:  # it is unknown whose part is missing: no later part may be final
            self._mark_gap(entry)

    def put(self, report: Report) -> None:
        """Store a report. Never raises on a disk error, but drops the report."""
        data = _pack(report)
        held = tuple(_held(report))
        with self._lock:
            self._make_room(len(data))
            suffix = WHOLE if self._gaps.isdisjoint(held) else PARTIAL
            path = self._folder / f"{self._next:012d}{suffix}"
            entry = _Entry(path, len(data), _results(report), held, self._monotonic())
            self._next += 1
            if len(data) <= self._limit and self._write(entry.path, data):
                self._append(entry)
            else:
                self._drop(entry)

    def missing(self) -> set[Held]:
        """Leases of which a part was dropped; few, since no work is leased in an outage."""
        with self._lock:
            return set(self._gaps)

    def oldest(self) -> StoredReport | None:
        """The report to send next; damaged files are set aside."""
        with self._lock:
            while self._entries:
                entry = self._entries[0]
                report = _unpack(read_or_none(entry.path))
                if report is not None:
                    return _kept(entry.path, report)
                self._take_out(entry)
                self._set_aside(entry.path)
                self._drop(entry)
        return None

    def remove(self, path: Path) -> None:
        """It was delivered."""
        with self._lock:
            for entry in [e for e in self._entries if e.path == path]:
                self._take_out(entry)
            remove(path)

    def refuse(self, path: Path) -> None:
        """No center will ever accept it: set it aside, count its results as dropped."""
        with self._lock:
            for entry in [e for e in self._entries if e.path == path]:
                self._take_out(entry)
                self._set_aside(path)
                self._drop(entry)

    def forget_leases(self, lost: Iterable[Held]) -> None:
        """These are no longer held: stop renewing them. Their results are still sent, because only
        the center knows whether it can use them."""
        gone = set(lost)
        with self._lock:
            self._gaps -= gone
            for entry in self._entries:
                if not gone.isdisjoint(entry.held):
                    entry.held = tuple(held for held in entry.held if held not in gone)

    def _make_room(self, size: int) -> None:
        while self._entries and self.bytes + size > self._limit:
            entry = self._entries[0]
            self._take_out(entry)
            remove(entry.path)
            self._drop(entry)

    def _drop(self, dropped: _Entry) -> None:
        """Count and log a dropped report; later parts must not be final."""
        self.dropped += dropped.results
        self._gaps.update(dropped.held)
        blocks = ", ".join(str(held.block) for held in dropped.held)
        name, results = dropped.path.name, dropped.results
        log.warning("outbox: dropped %s with %d results of blocks %s", name, results, blocks)
        for entry in self._entries:
            if not set(entry.held).isdisjoint(dropped.held):
                self._mark_gap(entry)

    def _mark_gap(self, entry: _Entry) -> None:
        """Mark it by its name, so that a restarted agent knows it too."""
        path = entry.path.with_suffix(PARTIAL)
        if path != entry.path:
            entry.path = entry.path.rename(path)

    def _write(self, path: Path, data: bytes) -> bool:
        try:
            write_durably(path, data)
        except OSError as error:
            log.error("outbox: cannot write %s: %s", path.name, error.strerror)  # noqa: TRY400  (the cause is in the line)
            return False
        return True

    def _append(self, entry: _Entry) -> None:
        self._entries.append(entry)
        self.bytes += entry.size

    def _take_out(self, entry: _Entry) -> None:
        self._entries.remove(entry)
        self.bytes -= entry.size

    def _set_aside(self, path: Path) -> None:
        self.torn += 1
        log.warning("outbox: set aside %s: it is damaged", path.name)
        self._rename(path, TORN)

    def _set_foreign_aside(self, path: Path, maker: str, results: int) -> None:
        """A center would always refuse it from this agent; its requests are leased again."""
        self.foreign += results
        log.warning(
            "outbox: set aside %s with %d results of agent %s; this is agent %s",
            path.name,
            results,
            maker,
            self._agent,
        )
        self._rename(path, FOREIGN)

    def _rename(self, path: Path, suffix: str) -> None:
        try:
            path.rename(path.with_suffix(suffix))
            for old in sorted(self._folder.glob(f"*{suffix}"))[:-_TORN_KEPT]:
                old.unlink(missing_ok=True)
        except OSError as error:
            log.warning("outbox: %s: %s", path.name, error.strerror)


def _held(report: Report) -> list[Held]:
    return [Held(block.block, block.token) for block in report.blocks]


def _results(report: Report) -> int:
    return sum(len(block.outcomes) for block in report.blocks)


def _kept(path: Path, report: Report) -> StoredReport:
    if path.suffix != PARTIAL:
        return StoredReport(path, report)
    cut_short = tuple(Held(b.block, b.token) for b in report.blocks if b.final)
    for block in report.blocks:
        block.final = False
    return StoredReport(path, report, cut_short)


def _pack(report: Report) -> bytes:
    body = msgspec.msgpack.encode(report)
    about = _Index(len(body), _results(report), _held(report), report.agent)
    index = msgspec.msgpack.encode(about)
    return _HEAD.pack(_MAGIC, len(index), zlib.crc32(body, zlib.crc32(index))) + index + body


def _split(data: bytes) -> tuple[bytes, bytes] | None:
    if len(data) < _HEAD.size:
        return None
    magic, length, crc = _HEAD.unpack_from(data)
    if magic != _MAGIC or zlib.crc32(memoryview(data)[_HEAD.size :]) != crc:
        return None
    start = _HEAD.size + length
    return data[_HEAD.size : start], data[start:]


def _index_of(data: bytes) -> _Index | None:
    parts = _split(data)
    try:
        return msgspec.msgpack.decode(parts[0], type=_Index) if parts else None
    except msgspec.DecodeError:
        return None


def _maker_of(data: bytes) -> str:
    report = _unpack(data)
    return report.agent if report is not None else ""


def _seconds_since_written(path: Path) -> float:
    """By the time of the file: the process that wrote it has ended."""
    try:
        return max(time() - path.stat().st_mtime, 0.0)
    except OSError:
        return 0.0


def _unpack(data: bytes | None) -> Report | None:
    parts = _split(data) if data is not None else None
    try:
        return msgspec.msgpack.decode(parts[1], type=Report) if parts else None
    except msgspec.DecodeError:
        return None
