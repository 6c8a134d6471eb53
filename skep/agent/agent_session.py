"""Which life of the agent's folder this process is. Runs in the agent's process.

A folder can be copied and the copy started: two processes with one identity. Centers let the
newest in and refuse the older one. So that the older one, started again, is not taken for the
newest, every process leaves a mark in its folder before it registers: a folder that does not
know the mark of the process that the centers know is an old copy.
"""

from __future__ import annotations

import logging
from pathlib import Path

import msgspec

from skep.runtime.files import read_or_none, write_durably
from skep.runtime.ids import new_secret

log = logging.getLogger(__name__)


#: Processes that have tried to register and never heard that they were taken. With the one that
#: was, as many as a registration may name.
TRIES_KEPT = 7


class _Marks(msgspec.Struct):
    #: Of the last process that a center took.
    mark: str = ""
    #: Of those that have tried to register since; perhaps one was taken and never heard of it.
    tries: tuple[str, ...] = ()
    #: The one of them that agents of before kept.
    next: str = ""


class AgentSession:
    """The marks of a folder. `open` and `taken` block on the disk."""

    def __init__(self, folder: Path) -> None:
        self._file = folder / "session"
        self._marks = _Marks()
        #: The number that a center gave this process; 0 before.
        self.number = 0
        self.mark = ""
        #: Marks of earlier processes.
        self.known: tuple[str, ...] = ()
        #: What was wrong with the file at `open`; "" = it was good, or there was none.
        self.damage = ""

    def open(self) -> None:
        """A mark for this process. An absent file is a folder without a past; so is a damaged
        one, but then a center may still take its last process for another machine's."""
        found = self._read()
        self.mark = new_secret("life")
        tries = (found.next, *found.tries) if found.next else found.tries
        self.known = tuple(mark for mark in (found.mark, *tries) if mark)
        self._keep(_Marks(found.mark, (*tries, self.mark)[-TRIES_KEPT:]))

    def taken(self) -> None:
        """A center knows this process under its mark."""
        if self._marks.mark != self.mark:
            self._keep(_Marks(self.mark))

    def _keep(self, marks: _Marks) -> None:
        self._marks = marks
        try:
            self._file.parent.mkdir(parents=True, exist_ok=True)
            write_durably(self._file, msgspec.json.encode(marks))
        except OSError as error:
            log.warning("cannot remember this session: %s", error.strerror)

    def _read(self) -> _Marks:
        data = read_or_none(self._file)
        if data is None:
            return _Marks()
        try:
            return msgspec.json.decode(data, type=_Marks)
        except (msgspec.DecodeError, UnicodeDecodeError):
            self.damage = f"{self._file} is {'damaged' if data else 'empty'}"
            log.warning("%s; the sessions before this one are not known", self.damage)
            return _Marks()
