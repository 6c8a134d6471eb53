"""What an agent must not forget of an instance when it is killed: that it has ended, how
often it was begun. One folder per instance and token, with its unsent log beside it.

Blocking: agents call it in a thread. A torn file is forgotten, never fatal.
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
    """Of one instance under one token."""

    run: str
    no: int
    token: int
    round: int = 0
    state: InstanceState = InstanceState.STARTING
    starts: int = 0
    #: Failures in a row.
    failures: int = 0
    exit_code: int | None = None
    reason: str = ""
    #: A process of it was begun, and nobody has seen its end.
    begun: bool = False

    @property
    def key(self) -> tuple[str, int, int]:
        return self.run, self.no, self.token

    def report(self) -> AppReport:
        """As a center is told."""
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
        """What earlier lives of the agent have left."""
        # Logs of applications are nobody else's business.
        self._folder.mkdir(parents=True, exist_ok=True)
        self._folder.chmod(0o700)
        return list(self._read_all())

    def _read_all(self) -> Iterator[InstanceRecord]:
        for folder in sorted(self._folder.iterdir()):
            data = read_or_none(folder / _FILE)
            try:
                yield msgspec.msgpack.decode(data or b"", type=InstanceRecord)
            except (msgspec.DecodeError, UnicodeDecodeError):
                log.warning("applications: forgot %s, it cannot be read", folder.name)
                shutil.rmtree(folder, ignore_errors=True)

    def folder(self, record: InstanceRecord) -> Path:
        """Made when it is not there."""
        # Hex, because a run's id may differ from another only in case.
        name = f"{record.run.encode().hex()}-{record.no}-{record.token}"
        folder = self._folder / name
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    def keep(self, record: InstanceRecord) -> None:
        """On disk when it returns; a disk that does not take it is logged."""
        try:
            write_durably(self.folder(record) / _FILE, msgspec.msgpack.encode(record))
        except OSError as error:
            log.warning("applications: cannot remember %s/%d: %s", record.run, record.no, error)

    def forget(self, record: InstanceRecord) -> None:
        """With its log."""
        shutil.rmtree(self.folder(record), ignore_errors=True)
