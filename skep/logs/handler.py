"""A handler of `logging` that passes each record on as a log line. Runs in centers and agents.

It never raises, never blocks and never logs: records that cannot become lines are counted. Records
of `skep.logs` are left out: a line about storing lines must not become one that is stored.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from skep.logs.line_format import make_entry
from skep.model.logs import LogEntry

_OWN = "skep.logs"
#: Loggers of agents, for processes that are a center and an agent.
AGENT_LOGGERS = ("skep.agent", "skep.downloaders")


class LineHandler(logging.Handler):
    """Calls `put` with a line for each record whose logger is wanted."""

    def __init__(self, put: Callable[[LogEntry], None], wanted: Callable[[str], bool]) -> None:
        super().__init__()
        self._put = put
        self._wanted = wanted
        self._formatter = logging.Formatter()
        #: Records that could not be made lines.
        self.failed = 0

    def emit(self, record: logging.LogRecord) -> None:
        if _is_below(record.name, (_OWN,)) or not self._wanted(record.name):
            return
        try:
            self._put(self._line(record))
        except Exception:  # noqa: BLE001 - logging must not break the code that logs
            self.failed += 1

    def _line(self, record: logging.LogRecord) -> LogEntry:
        fields = {"logger": record.name}
        if record.exc_info:
            fields["exception"] = self._formatter.formatException(record.exc_info)
        return make_entry(record.created, record.levelno, record.getMessage(), fields)


def of_agent(logger: str) -> bool:
    return _is_below(logger, AGENT_LOGGERS)


def not_of_agent(logger: str) -> bool:
    return not of_agent(logger)


def every_logger(_: str) -> bool:
    return True


def _is_below(logger: str, parents: tuple[str, ...]) -> bool:
    return any(logger == parent or logger.startswith(f"{parent}.") for parent in parents)


@contextmanager
def recorded(put: Callable[[LogEntry], None], wanted: Callable[[str], bool]) -> Iterator[None]:
    """Pass records on while the context is open. Only the program of a process uses it."""
    handler = LineHandler(put, wanted)
    root = logging.getLogger()
    root.addHandler(handler)
    try:
        yield
    finally:
        root.removeHandler(handler)
