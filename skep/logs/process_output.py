"""Turns a line of a child process's output into a log line. Pure; used where the output is read.

Processes of Skep write JSON lines (`runtime/logging.py`): their level, time and logger are kept.
Every other line is text of level info. It must never raise because of a line.
"""

from __future__ import annotations

import logging
from datetime import datetime

import msgspec

from skep.logs.line_format import make_entry
from skep.model.logs import LogEntry

_LEVELS = {
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "warning": logging.WARNING,
    "error": logging.ERROR,
    "critical": logging.CRITICAL,
}


class _JsonLine(msgspec.Struct):
    """As `JsonLines` writes it."""

    at: datetime
    level: str
    message: str
    logger: str = ""
    exception: str = ""


_DECODER = msgspec.json.Decoder(_JsonLine)


def entry_of_output(line: bytes, now: float) -> LogEntry:
    """`now` is the time of a line that has none."""
    if line.startswith(b"{"):
        try:
            found = _DECODER.decode(line)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            return make_entry(now, logging.INFO, line)
        named = {"logger": found.logger, "exception": found.exception}
        fields = {name: value for name, value in named.items() if value}
        level = _LEVELS.get(found.level, logging.INFO)
        return make_entry(found.at.timestamp(), level, found.message, fields)
    return make_entry(now, logging.INFO, line)
