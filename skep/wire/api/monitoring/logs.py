"""Log lines: search, follow, context and download. Types and routes."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from skep.model.logs import LogLine, LogSourceKind
from skep.model.message_bounds import FilterText, exact
from skep.wire.api.caller import Resource
from skep.wire.api.route import Route

#: Maximum seconds that a call waits for new lines.
WAIT_MAX = 30.0
#: Maximum lines of one page, and of one download.
PAGE_MAX, DOWNLOAD_MAX = 1_000, 50_000
#: Maximum lines before and after a line.
CONTEXT_MAX = 200
#: Header of a download with the cursor to continue from.
CURSOR_HEADER = "skep-cursor"

#: An RE2 pattern.
Regex = Annotated[str, Meta(max_length=2_000, extra_json_schema=exact(format="re2"))]
Level = Annotated[int, Meta(ge=0, le=50)]
Cursor = Annotated[str, Meta(max_length=4_000, extra_json_schema=exact(format="skep-cursor"))]
Part = Annotated[str, Meta(max_length=255)]


class WhichLines(msgspec.Struct):
    """Which lines; all conditions must fit."""

    #: Terms of the filter language: `level:error run:quotes-1 since:2h "free text"`.
    filter: FilterText = ""
    #: RE2 pattern that the line and its fields must contain.
    pattern: Regex = ""
    #: This level and above: 10 debug, 20 info, 30 warning, 40 error, 50 critical.
    level: Level = 0
    #: Continue from here; empty = from the newest line.
    cursor: Cursor = ""
    #: Maximum number of lines.
    limit: Annotated[int, Meta(ge=1, le=PAGE_MAX)] = 100


class LogPage(msgspec.Struct):
    """Lines, newest first. A call reads a bounded number of bytes: without lines but with a cursor
    it has more to look at."""

    #: The lines.
    lines: list[LogLine]
    #: Continue from here; empty = there are no more.
    cursor: str
    #: Every line at or after this time was looked at; null = all were.
    scanned_to: float | None
    #: Pieces that were looked at.
    pieces: int
    #: Pieces that were read.
    read: int
    #: Pieces that could not be read; their lines are missing.
    damaged: int
    #: Where `follow` starts to get all lines that arrive after this answer.
    position: int


class WhichNewLines(msgspec.Struct):
    """Which of the lines that arrive."""

    #: Terms of the filter language.
    filter: FilterText = ""
    #: RE2 pattern that the line and its fields must contain.
    pattern: Regex = ""
    #: This level and above.
    level: Level = 0
    #: Only lines that arrived after it; -1 = after this call.
    position: Annotated[int, Meta(ge=-1, le=2**62)] = -1
    #: Seconds to wait for the first line.
    wait: Annotated[float, Meta(ge=0, le=WAIT_MAX)] = 0.0


class NewLines(msgspec.Struct):
    """Lines in the order of their times; lines of an agent that was away may be old."""

    #: The lines.
    lines: list[LogLine]
    #: Continue from here.
    position: int
    #: There are more already: call again at once.
    more: bool


class WhichContext(msgspec.Struct):
    """A line, named by its source, token and offset, and how many lines around it."""

    #: As in the line.
    source: Annotated[str, Meta(min_length=1, max_length=255)]
    #: As in the line.
    kind: LogSourceKind = LogSourceKind.CENTER
    #: As in the line.
    token: Annotated[int, Meta(ge=0, le=2**62)] = 0
    #: As in the line.
    offset: Annotated[int, Meta(ge=0, le=2**62)] = 0
    #: As in the line.
    run: Part = ""
    #: As in the line.
    agent: Part = ""
    #: Lines before it.
    before: Annotated[int, Meta(ge=0, le=CONTEXT_MAX)] = 10
    #: Lines after it.
    after: Annotated[int, Meta(ge=0, le=CONTEXT_MAX)] = 10


class LogContext(msgspec.Struct):
    """Lines of one source, oldest first."""

    #: The lines.
    lines: list[LogLine]


class WhichDownload(msgspec.Struct):
    """Which lines, and how."""

    #: Terms of the filter language.
    filter: FilterText = ""
    #: RE2 pattern that the line and its fields must contain.
    pattern: Regex = ""
    #: This level and above.
    level: Level = 0
    #: Continue from here; empty = from the newest line.
    cursor: Cursor = ""
    #: Maximum number of lines.
    limit: Annotated[int, Meta(ge=1, le=DOWNLOAD_MAX)] = 10_000
    #: `text` for people, `json` for one JSON object per line.
    format: Literal["text", "json"] = "text"


class AgentBytes(msgspec.Struct):
    """Stored lines of one agent; `agent` is empty for those of centers and their spiders."""

    agent: str
    #: Number of stored pieces.
    pieces: int
    #: Stored bytes, compressed.
    bytes: int


class LogBudgets(msgspec.Struct):
    """What is stored, and the limits."""

    #: Stored bytes, compressed.
    bytes: int
    #: Limit of all stored bytes.
    bytes_limit: int
    #: Limit of the stored bytes of one agent.
    agent_bytes_limit: int
    #: Seconds for which lines are stored.
    age_limit: float
    #: Stored bytes by agent.
    agents: list[AgentBytes]
    #: Lines that this center has stored since its start.
    stored: int
    #: Lines that came a second time.
    duplicates: int
    #: Lines that were refused, because a newer process writes to their source.
    stale: int
    #: Lines that were dropped before they could be stored.
    dropped: int
    #: Batches that came too fast, by agent.
    delayed: dict[str, int]
    #: Lines that agents dropped since their start, by agent, as they said to this center.
    agent_drops: dict[str, int]


LIST_LOG_LINES = Route(
    "list_log_lines", "GET", "/api/v1/logs", LogPage, asks=WhichLines, seconds=30.0
)
READ_NEW_LOG_LINES = Route(
    "read_new_log_lines", "GET", "/api/v1/logs/follow", NewLines, asks=WhichNewLines
)
GET_LOG_CONTEXT = Route(
    "get_log_context",
    "GET",
    "/api/v1/logs/context",
    LogContext,
    asks=WhichContext,
    query_example={"kind": "center", "source": "center-1", "token": 1, "offset": 0},
)
GET_LOG_FILE: Route[bytes] = Route(
    "get_log_file",
    "GET",
    "/api/v1/logs/download",
    asks=WhichDownload,
    media="text/plain",
    other_media=("application/jsonl",),
    seconds=60.0,
    answer_example="2026-01-01T00:00:00.000Z info center center-1: center is open\n",
)
GET_LOG_BUDGETS = Route("get_log_budgets", "GET", "/api/v1/logs/budgets", LogBudgets)


class LogsClient(Resource):
    """Calls the routes of this file."""

    async def search(self, asks: WhichLines | None = None) -> LogPage:
        """Lines that fit, newest first."""
        return await self._caller.call(LIST_LOG_LINES, asks=asks)

    async def follow(self, asks: WhichNewLines | None = None) -> NewLines:
        """Lines that arrived after a position."""
        return await self._caller.call(READ_NEW_LOG_LINES, asks=asks)

    async def context(self, asks: WhichContext | None = None) -> LogContext:
        """The lines around a line."""
        return await self._caller.call(GET_LOG_CONTEXT, asks=asks)

    async def download(self, asks: WhichDownload | None = None) -> bytes:
        """Lines as text or as JSON lines, oldest first."""
        return await self._caller.content(GET_LOG_FILE, asks=asks)

    async def budgets(self) -> LogBudgets:
        """What is stored, and the limits."""
        return await self._caller.call(GET_LOG_BUDGETS)
