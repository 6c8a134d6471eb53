"""Cookies and sessions of the runs that an agent works for, one file for each.

Runs in the agent's process: `keep` on its event loop, disk access in a thread. A run that was idle
for long, or whose agent was restarted, continues with the same identities. A damaged file is
ignored, never fatal. Cookies are logins: files are encrypted with a key that a center gives to the
agent and that is in memory only; without a key nothing is written.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path

import msgspec

from skep.downloaders.session_state import SessionState
from skep.runtime.file_encryption import SealBroken, is_sealed, seal, unseal
from skep.runtime.files import read_or_none, write_durably

log = logging.getLogger(__name__)

_SUFFIX = ".jar"
#: Maximum bytes of one run. A hostile host can fill a cookie jar; a larger one is not stored.
LARGEST = 2**20
_decoder = msgspec.msgpack.Decoder(SessionState)


class RunSessionFiles:
    """`known` says whether the agent still works for a run."""

    def __init__(self, folder: Path, known: Callable[[str], bool]) -> None:
        self._folder = folder / "runs"
        self._known = known
        self._kept: dict[str, bytes] = {}
        #: Runs whose file is older than their state in memory.
        self._unsaved: set[str] = set()
        self._too_large: set[str] = set()
        #: Runs that must not have a file any more.
        self._hidden: set[str] = set()
        self._key = b""
        #: Files of an earlier process, until a center sends the key.
        self._sealed: dict[str, bytes] = {}

    def open(self) -> None:
        """Load the files of earlier processes of the agent. Blocks."""
        for torn in self._folder.glob(f"*{_SUFFIX}.new"):
            torn.unlink(missing_ok=True)  # left by a process that died while writing
        for path in self._folder.glob(f"*{_SUFFIX}"):
            run, data = _run_of(path), read_or_none(path)
            if not run or not data or not self._known(run):
                path.unlink(missing_ok=True)
            elif is_sealed(data):
                self._sealed[run] = data
            else:  # of an earlier version, unencrypted: rewritten as soon as there is a key
                path.unlink(missing_ok=True)
                self._kept[run] = data
                self._unsaved.add(run)

    def unlock(self, key: bytes) -> None:
        """A center sent the key: files of an earlier process can be decrypted. Blocks."""
        self._key = key
        sealed, self._sealed = self._sealed if key else {}, {} if key else self._sealed
        for run, data in sealed.items():
            try:
                self._kept.setdefault(run, unseal(key, data))
            except SealBroken:
                log.warning("cookies of run %s are lost: their file cannot be read", run)
                self._file(run).unlink(missing_ok=True)

    def of(self, run: str) -> SessionState | None:
        """None when there is no state."""
        data = self._kept.get(run)
        try:
            return _decoder.decode(data) if data else None
        except (msgspec.DecodeError, UnicodeDecodeError):
            log.warning("cookies of run %s are lost: their file cannot be read", run)
            return None

    def keep(self, run: str, session_state: SessionState) -> None:
        """Keep the current state; `save` writes it."""
        data = msgspec.msgpack.encode(session_state)
        nothing = not session_state.cookies and not session_state.visitors
        if (nothing and run not in self._kept) or self._kept.get(run) == data:
            return
        if len(data) > LARGEST:
            self._refuse(run, len(data))
        elif self._known(run):
            self._kept[run] = data
            if run not in self._hidden:
                self._unsaved.add(run)

    def _refuse(self, run: str, size: int) -> None:
        """Keep the earlier state."""
        if run not in self._too_large:
            self._too_large.add(run)
            log.warning("cookies of run %s are too large (%d bytes): not stored", run, size)

    def save(self) -> None:
        """Write changed files. Blocks. A file is complete, or it is the old one."""
        while self._unsaved and self._key:
            run = self._unsaved.pop()
            data = self._kept.get(run)
            if data is None:
                continue
            try:
                write_durably(self._file(run), seal(self._key, data))
            except OSError as error:
                log.warning("cannot store cookies of run %s: %s", run, error.strerror)

    def drop(self, run: str) -> None:
        """The run was released. Blocks."""
        self._kept.pop(run, None)
        self._sealed.pop(run, None)
        self._hidden.discard(run)
        self._unsaved.discard(run)
        self._too_large.discard(run)
        self._file(run).unlink(missing_ok=True)

    def hide(self, run: str) -> None:
        """The run has ended and still has downloads here: nothing of it stays on the disk.
        Blocks."""
        self._hidden.add(run)
        self._unsaved.discard(run)
        self._file(run).unlink(missing_ok=True)

    def _file(self, run: str) -> Path:
        # Hex, as in agent_folder.py.
        return self._folder / f"{run.encode().hex()}{_SUFFIX}"


def _run_of(path: Path) -> str:
    try:
        return bytes.fromhex(path.stem).decode()
    except ValueError:
        return ""
