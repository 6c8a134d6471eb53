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

    kind: LogSourceKind
    name: Name
    run: Name = ""
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

    kind: LogSourceKind
    source: Name
    run: Name
    agent: Name
    level: Number
    time: Real
    text: Text
    fields: dict[str, Any]
    #: Token and offset name the line within its source.
    token: Number
    offset: Number


class LogBatch(Struct, frozen=True):
    """Consecutive lines of one source under one fencing token; `lines` is a JSON line for each."""

    source: LogSource
    token: Number
    #: Offset of the first line; offsets count lines, from 0 for each token.
    first: Number
    lines: Blob


def level_bit(level: int) -> int:
    """The bit of a piece's level bits that stands for this level."""
    return 1 << min(max(level, LOWEST_LEVEL), HIGHEST_LEVEL) // 10


def level_bits_from(level: int) -> int:
    """The bits of this level and all above it."""
    return -level_bit(level) & ((1 << HIGHEST_LEVEL // 10 + 1) - 1)
