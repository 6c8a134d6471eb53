"""Log lines on stderr: readable text on a terminal, JSON lines for long-running programs.

Commands that print sentences to stderr log sentences too, wherever stderr goes. The program of a
process calls it once; a library never does. Third-party loggers log warnings and above only, so
that calls and health checks leave no line. Credentials in a line are masked.
"""

from __future__ import annotations

import json
import logging
from datetime import UTC, datetime
from typing import TextIO

from skep.runtime.masking import mask_text

OURS = "skep"


class JsonLines(logging.Formatter):
    """One object per line; times are in UTC."""

    def format(self, record: logging.LogRecord) -> str:
        line = {
            "at": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": mask_text(record.getMessage()),
        }
        if record.exc_info:
            line["exception"] = mask_text(self.formatException(record.exc_info))
        return json.dumps(line, ensure_ascii=False)


class ForPeople(logging.Formatter):
    """Time of day, the level from warning up, and the message."""

    def __init__(self) -> None:
        super().__init__(datefmt="%H:%M:%S")

    def format(self, record: logging.LogRecord) -> str:
        return mask_text(super().format(record))

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - logging's name
        level = f"{record.levelname.lower()}: " if record.levelno >= logging.WARNING else ""
        return f"{self.formatTime(record, self.datefmt)} {level}{record.getMessage()}"


def start_logging(stream: TextIO, level: int = logging.INFO, *, sentences: bool = False) -> None:
    """Replaces earlier handlers; `level` applies to Skep's own loggers. With `sentences` there
    are no JSON lines, not even in a file."""
    handler = logging.StreamHandler(stream)
    handler.setFormatter(ForPeople() if sentences or stream.isatty() else JsonLines())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.WARNING)
    logging.getLogger(OURS).setLevel(level)
