"""Log lines for the macro `log_view` and its module: oldest first, levels as words. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from urllib.parse import urlencode

from skep.model.logs import LogLine
from skep.portal.show.times import clock_time, moment
from skep.wire.api.monitoring.logs import LogPage, NewLines

_LEVELS = ((50, "critical"), (40, "error"), (30, "warning"), (20, "info"), (0, "debug"))
#: Characters of one line.
LINE_LIMIT = 4000


@dataclass(frozen=True, slots=True)
class ShownLine:
    time: str
    exact: str
    level: str
    source: str
    text: str
    #: Query of `/logs/context` for the lines around it.
    context: str = ""


@dataclass(frozen=True, slots=True)
class ShownLog:
    """Lines, and how a log goes on: `older` and `newer` are queries of `/lines`, "" = no more."""

    lines: Sequence[ShownLine]
    older: str = ""
    newer: str = ""
    #: The cursor of older lines, for a link without scripts.
    cursor: str = ""
    #: The first line goes on with the last one that was shown before.
    joins: bool = False


def shown_log(page: LogPage, wanted: str) -> ShownLog:
    """`wanted` is the filter of the lines."""
    older = urlencode({"filter": wanted, "cursor": page.cursor}) if page.cursor else ""
    newer = urlencode({"filter": wanted, "position": page.position})
    return ShownLog(shown_lines(reversed(page.lines)), older, newer, page.cursor)


def new_lines(found: NewLines, wanted: str) -> ShownLog:
    newer = urlencode({"filter": wanted, "position": found.position})
    return ShownLog(shown_lines(found.lines), newer=newer)


def shown_lines(lines: Iterable[LogLine]) -> list[ShownLine]:
    return [_shown(line) for line in lines]


def level_word(level: int) -> str:
    return next(word for least, word in _LEVELS if level >= least or least == 0)


def context_of(line: LogLine) -> str:
    """Names a line, as the API wants it for its context."""
    names = ("kind", "source", "token", "offset", "run", "agent")
    given = {name: getattr(line, name) for name in names}
    return urlencode({name: value for name, value in given.items() if value != ""})


def _shown(line: LogLine) -> ShownLine:
    when = moment(line.time, line.time)
    level, source, text = level_word(line.level), line.agent or line.source, line.text[:LINE_LIMIT]
    if when is None:
        return ShownLine("", "", level, source, text, context_of(line))
    return ShownLine(clock_time(line.time), when.exact, level, source, text, context_of(line))
