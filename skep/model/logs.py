"""Nouns of logs: where a line comes from, the line itself, and a batch on its way to a center."""

from __future__ import annotations

from enum import StrEnum
from typing import Any

from msgspec import Struct

from skep.model.message_bounds import Blob, Name, Number, Real, Text

#: Levels are those of Python's logging; each ten is one bit of a piece's level bits.
LOWEST_LEVEL, HIGHEST_LEVEL = 0, 50


class LogSourceKind(StrEnum):
    """What writes log lines."""

    CENTER = "center"
    AGENT = "agent"
    SPIDER = "spider"
    GENERATOR = "generator"
    DOWNLOADER = "downloader"
    APP = "app"


class LogSource(Struct, frozen=True):
    """One sequence of lines: offsets count within it, and lines of it are never mixed with others.
    `name` is that of a center, an agent, a spider or a job; `run` and `agent` may be empty."""

    #: What writes the lines.
    kind: LogSourceKind
    #: Name of the center, agent or job; for code of a run on an agent, of the run.
    name: Name
    #: The run, if the lines belong to one.
    run: Name = ""
    #: The agent, if the lines come from one.
    agent: Name = ""


class LogEntry(Struct, frozen=True, omit_defaults=True):
    """A line without its source, as it is buffered and sent: one JSON object."""

    #: Seconds since the epoch.
    time: Real
    level: Number
    text: Text
    fields: dict[str, Any] = {}


class LogLine(Struct, frozen=True):
    """A line as it is shown and exported."""

    #: What wrote the line.
    kind: LogSourceKind
    #: Name of its source.
    source: Name
    #: The run that it belongs to; empty = none.
    run: Name
    #: The agent that it comes from; empty = a center.
    agent: Name
    #: 10 debug, 20 info, 30 warning, 40 error, 50 critical.
    level: Number
    #: Seconds since the epoch.
    time: Real
    #: The line, with credentials masked; a long line is cut and says so.
    text: Text
    #: Structured fields, such as `logger` and `exception`.
    fields: dict[str, Any]
    #: Number of the process that wrote it, within its source.
    token: Number
    #: Number of the line, within its source and token.
    offset: Number


class LogBatch(Struct, frozen=True):
    """Consecutive lines of one source under one fencing token; `lines` is a JSON line for each."""

    #: Where the lines come from.
    source: LogSource
    #: Fencing number: lines with an older one than the newest are refused.
    token: Number
    #: Offset of the first line; offsets count lines, from 0 for each token.
    first: Number
    #: JSON objects with `time`, `level`, `text` and `fields`, one per line.
    lines: Blob


def level_bit(level: int) -> int:
    """The bit of a piece's level bits that stands for this level."""
    return 1 << min(max(level, LOWEST_LEVEL), HIGHEST_LEVEL) // 10


def level_bits_from(level: int) -> int:
    """The bits of this level and all above it."""
    return -level_bit(level) & ((1 << HIGHEST_LEVEL // 10 + 1) - 1)
