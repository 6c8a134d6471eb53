"""What an agent must remember of an instance when it is killed: that it has ended, and its number
of starts. One folder per instance and token, which also contains the unsent log.

Blocking: agents call it in a thread. A damaged file is ignored, never fatal.
"""

from __future__ import annotations

import logging
import shutil
from collections.abc import Iterator
from pathlib import Path

import msgspec

from skep.model.jobs.app import InstanceState
from skep.runtime.files import read_or_none, write_durably
from skep.wire.messages import AppReport

log = logging.getLogger(__name__)

_FILE = "record"


class InstanceRecord(msgspec.Struct):
    """The record of one instance under one token."""

    run: str
    no: int
    token: int
    round: int = 0
    state: InstanceState = InstanceState.STARTING
    starts: int = 0
    #: Consecutive failures.
    failures: int = 0
    exit_code: int | None = None
    reason: str = ""
    #: A process was started, and its end was not seen.
    begun: bool = False

    @property
    def key(self) -> tuple[str, int, int]:
        return self.run, self.no, self.token

    def report(self) -> AppReport:
        """The report for a center."""
        return AppReport(
            self.run,
            self.no,
            self.token,
            self.state,
            self.round,
            self.starts,
            self.exit_code,
            self.reason[:2000],
        )


class InstanceRecords:
    """The folders of all instances of an agent."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def open(self) -> list[InstanceRecord]:
        """The records of earlier processes of the agent."""
        # Logs of applications are private.
        self._folder.mkdir(parents=True, exist_ok=True)
        self._folder.chmod(0o700)
        return list(self._read_all())

    def _read_all(self) -> Iterator[InstanceRecord]:
        for folder in sorted(self._folder.iterdir()):
            data = read_or_none(folder / _FILE)
            try:
                yield msgspec.msgpack.decode(data or b"", type=InstanceRecord)
            except (msgspec.DecodeError, UnicodeDecodeError):
                log.warning("applications: ignored %s: it cannot be read", folder.name)
                shutil.rmtree(folder, ignore_errors=True)

    def folder(self, record: InstanceRecord) -> Path:
        """Created when it is missing."""
        # Hex, because two run ids can differ only in case.
        name = f"{record.run.encode().hex()}-{record.no}-{record.token}"
        folder = self._folder / name
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    def keep(self, record: InstanceRecord) -> None:
        """Durable when it returns; a disk error is logged."""
        try:
            write_durably(self.folder(record) / _FILE, msgspec.msgpack.encode(record))
        except OSError as error:
            log.warning("applications: cannot store %s/%d: %s", record.run, record.no, error)

    def forget(self, record: InstanceRecord) -> None:
        """Delete a record with its log."""
        shutil.rmtree(self.folder(record), ignore_errors=True)
