"""Log lines: search, follow, context and download, and the budgets of what is stored.

Run by centers; read only. Lines were masked before they were stored. A call reads a bounded
number of bytes and says how far it got.
"""

from __future__ import annotations

from datetime import UTC, datetime

from msgspec.structs import replace

from skep.center.http.authentication import Role
from skep.center.http.endpoint import Call, Endpoint, Raw, Scoping
from skep.center.http.scoping import agents_in_scope, runs_inside
from skep.errors import InvalidFilter, InvalidInput, Unavailable
from skep.logs.center.filtering import query_of
from skep.logs.center.query import LogQuery, Matcher, level_word
from skep.logs.center.search import SearchBudget
from skep.logs.export import json_lines
from skep.model.logs import LogLine, LogSource
from skep.store.ports.logs import PiecesInside
from skep.wire.api.monitoring.logs import (
    CURSOR_HEADER,
    GET_LOG_BUDGETS,
    GET_LOG_CONTEXT,
    GET_LOG_FILE,
    LIST_LOG_LINES,
    READ_NEW_LOG_LINES,
    WAIT_MAX,
    AgentBytes,
    LogBudgets,
    LogContext,
    LogPage,
    NewLines,
    WhichContext,
    WhichDownload,
    WhichLines,
    WhichNewLines,
)
from skep.wire.filter.check import read_filter
from skep.wire.filter.tables import LOGS

#: Maximum seconds that a follower waits.
LONGEST_WAIT = WAIT_MAX
#: Seconds between two checks for new lines.
LOOK_EVERY = 0.25
#: Bytes of one download.
DOWNLOAD_BYTES = 16 * 2**20
#: Seconds of one download.
DOWNLOAD_SECONDS = 20.0
_PAGE = 500


async def search(call: Call) -> LogPage:
    """Newest first."""
    asked: WhichLines = call.query
    logs, query = call.services.logs, await _query(call, asked)
    position = await logs.search.position()
    async with logs.readers:
        found = await logs.search.search(query, asked.cursor, asked.limit, SearchBudget())
    return LogPage(
        found.lines,
        found.cursor,
        found.scanned_to,
        found.pieces,
        found.read,
        found.damaged,
        position,
    )


async def _query(call: Call, asked: WhichLines | WhichNewLines | WhichDownload) -> LogQuery:
    """Within the scope of the caller. Raises InvalidFilter, and InvalidInput for a pattern that is
    not valid."""
    wanted = read_filter(asked.filter, LOGS, call.services.clock.now())
    query = query_of(wanted, asked.pattern, asked.level)
    Matcher(query)
    return replace(query, inside=await _inside(call)) if call.who.scope else query


async def _inside(call: Call) -> PiecesInside:
    views = agents_in_scope(call, await call.services.roster.refresh())
    return PiecesInside(call.who.scope, tuple(view.id for view in views))


async def follow(call: Call) -> NewLines:
    """What arrived after a position; waits for the first line."""
    asked: WhichNewLines = call.query
    query, logs, clock = await _query(call, asked), call.services.logs, call.services.clock
    position = asked.position if asked.position >= 0 else await logs.search.position()
    deadline = clock.monotonic() + min(asked.wait, LONGEST_WAIT)
    found = await logs.search.follow(query, position)
    while not found.lines and clock.monotonic() < deadline and not await _is_over(call):
        if await logs.position() == found.position:
            await clock.sleep(min(LOOK_EVERY, max(deadline - clock.monotonic(), 0.0)))
        else:
            found = await logs.search.follow(query, found.position)
    return NewLines(found.lines, found.position, found.more)


async def _is_over(call: Call) -> bool:
    """Whether the caller disconnected, or the center stops."""
    return call.services.closing.is_set() or await call.gone()


async def context(call: Call) -> LogContext:
    """The lines around one line of the same source."""
    asked: WhichContext = call.query
    source = LogSource(asked.kind, asked.source, asked.run, asked.agent)
    if call.who.scope and not await _is_inside(call, source):
        return LogContext([])
    around = asked.before, asked.after
    search = call.services.logs.search
    return LogContext(await search.context(source, asked.token, asked.offset, *around))


async def _is_inside(call: Call, source: LogSource) -> bool:
    """Whether the caller may read the lines of the source; those of centers never."""
    if source.run:
        return bool(await runs_inside(call, [source.run]))
    return bool(source.agent) and source.agent in (await _inside(call)).agents


async def download(call: Call) -> Raw:
    """Lines as a file, oldest first; the header names where to continue."""
    asked: WhichDownload = call.query
    lines, cursor = await _collected(call, asked)
    lines.reverse()
    if asked.format == "json":
        content, media = b"".join(json_lines(lines)), "application/jsonl"
    else:
        content, media = "".join(map(text_of, lines)).encode(), "text/plain; charset=utf-8"
    named = "skep-logs.jsonl" if asked.format == "json" else "skep-logs.txt"
    headers = {"content-disposition": f'attachment; filename="{named}"', CURSOR_HEADER: cursor}
    return Raw(content, media, headers)


async def _collected(call: Call, asked: WhichDownload) -> tuple[list[LogLine], str]:
    """(lines, newest first, and where to continue), within bounds of lines, bytes and time."""
    query, services = await _query(call, asked), call.services
    deadline = services.clock.monotonic() + DOWNLOAD_SECONDS
    lines: list[LogLine] = []
    cursor, size = asked.cursor, 0
    while len(lines) < asked.limit and size < DOWNLOAD_BYTES:
        wanted = min(_PAGE, asked.limit - len(lines))
        async with services.logs.readers:
            found = await services.logs.search.search(query, cursor, wanted, SearchBudget())
        lines += found.lines
        size += sum(len(line.text) for line in found.lines)
        cursor = found.cursor
        if not cursor or services.clock.monotonic() >= deadline or await _is_over(call):
            break
    return lines, cursor


def text_of(line: LogLine) -> str:
    """`2026-11-18T12:00:00.000Z error spider quotes: text`."""
    time = datetime.fromtimestamp(line.time, UTC).isoformat(timespec="milliseconds")
    name = line.agent if line.agent == line.source else f"{line.agent} {line.source}".strip()
    head = f"{time.replace('+00:00', 'Z')} {level_word(line.level)} {line.kind} {name}"
    return f"{head}: {line.text}\n"


async def budgets(call: Call) -> LogBudgets:
    """What is stored of each agent, and the limits."""
    logs = call.services.logs
    settings, figures = logs.settings, logs.intake.figures
    stored = await logs.pieces.stored()
    return LogBudgets(
        sum(one.bytes for one in stored),
        settings.bytes,
        settings.agent_bytes,
        settings.age,
        [AgentBytes(one.agent, one.pieces, one.bytes) for one in stored],
        figures.stored,
        figures.duplicates,
        figures.stale,
        figures.dropped + logs.recorder.dropped,
        dict(figures.delayed),
        dict(logs.agent_drops),
    )


_SEARCH_ERRORS = (InvalidFilter, InvalidInput, Unavailable)
ENDPOINTS = (
    Endpoint(
        LIST_LOG_LINES,
        Role.VIEWER,
        search,
        "Search log lines",
        errors=_SEARCH_ERRORS,
        tag="logs",
        scoped=Scoping.FILTERED,
        notes="Newest first. Continue with `cursor` until it is empty; a page may be empty "
        "although there is more to look at.",
    ),
    Endpoint(
        READ_NEW_LOG_LINES,
        Role.VIEWER,
        follow,
        "Wait for new log lines",
        errors=_SEARCH_ERRORS,
        tag="logs",
        scoped=Scoping.FILTERED,
        notes="Each line once, in the order of arrival, also of agents that were away.",
    ),
    Endpoint(
        GET_LOG_CONTEXT,
        Role.VIEWER,
        context,
        "Show the lines around a log line",
        errors=(InvalidInput, Unavailable),
        tag="logs",
        scoped=Scoping.FILTERED,
    ),
    Endpoint(
        GET_LOG_FILE,
        Role.VIEWER,
        download,
        "Download log lines",
        errors=_SEARCH_ERRORS,
        tag="logs",
        scoped=Scoping.FILTERED,
        notes="Oldest first, as text or as JSON lines. When there are more lines than the answer "
        f"may hold, the header `{CURSOR_HEADER}` has the cursor of the older ones.",
    ),
    Endpoint(
        GET_LOG_BUDGETS,
        Role.VIEWER,
        budgets,
        "Show the stored bytes of logs and their limits",
        errors=(Unavailable,),
        tag="logs",
    ),
)
