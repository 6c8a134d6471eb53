"""The session of this process of the agent. Runs in the agent's process.

A folder can be copied and the copy started: two processes with one identity. Centers accept the
newest and refuse the older one. So that the older one, when restarted, is not taken for the
newest, every process writes a mark into its folder before it registers: a folder that does not
contain the mark that the centers know is an old copy.
"""

from __future__ import annotations

import logging
from pathlib import Path

import msgspec

from skep.runtime.files import read_or_none, write_durably
from skep.runtime.ids import new_secret

log = logging.getLogger(__name__)


#: Maximum marks of processes that tried to register and never got an answer. With the accepted
#: one, as many as a registration can contain.
TRIES_KEPT = 7


class _Marks(msgspec.Struct):
    #: Mark of the last process that a center accepted.
    mark: str = ""
    #: Marks of processes that tried to register since; one may have been accepted.
    tries: tuple[str, ...] = ()
    #: The one that earlier versions stored.
    next: str = ""


class AgentSession:
    """The marks of a folder. `open` and `taken` block on the disk."""

    def __init__(self, folder: Path) -> None:
        self._file = folder / "session"
        self._marks = _Marks()
        #: The session number that a center assigned; 0 before.
        self.number = 0
        self.mark = ""
        #: Marks of earlier processes.
        self.known: tuple[str, ...] = ()
        #: The problem of the file at `open`; "" = it was valid, or missing.
        self.damage = ""

    def open(self) -> None:
        """Create a mark for this process. A missing file means a new folder; so does a damaged one,
        but then a center may take the last process of this folder for another machine."""
        found = self._read()
        self.mark = new_secret("life")
        tries = (found.next, *found.tries) if found.next else found.tries
        self.known = tuple(mark for mark in (found.mark, *tries) if mark)
        self._keep(_Marks(found.mark, (*tries, self.mark)[-TRIES_KEPT:]))

    def taken(self) -> None:
        """A center has accepted this process with its mark."""
        if self._marks.mark != self.mark:
            self._keep(_Marks(self.mark))

    def _keep(self, marks: _Marks) -> None:
        self._marks = marks
        try:
            self._file.parent.mkdir(parents=True, exist_ok=True)
            write_durably(self._file, msgspec.json.encode(marks))
        except OSError as error:
            log.warning("cannot store this session: %s", error.strerror)

    def _read(self) -> _Marks:
        data = read_or_none(self._file)
        if data is None:
            return _Marks()
        try:
            return msgspec.json.decode(data, type=_Marks)
        except (msgspec.DecodeError, UnicodeDecodeError):
            self.damage = f"{self._file} is {'damaged' if data else 'empty'}"
            log.warning("%s; earlier sessions are not known", self.damage)
            return _Marks()
