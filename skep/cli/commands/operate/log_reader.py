"""Prints log lines: pages of a search, new lines as they arrive, lines around a hit.

Imported when `skep logs` runs. Lines are foreign text: control characters were escaped before
they were stored, and are escaped again here.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

import msgspec

from skep.cli.commands.operate.storage import size
from skep.cli.terminal.call_retries import with_retries
from skep.cli.terminal.center_calls import ask, connected
from skep.cli.terminal.output import (
    age,
    colored,
    harmless_lines,
    say,
    show,
    show_exact,
    show_json,
    table,
)
from skep.embed.center_address import CenterAddress
from skep.model.logs import LogLine
from skep.runtime.clock import SystemClock
from skep.wire.api.monitoring.logs import (
    PAGE_MAX,
    LogBudgets,
    LogPage,
    WhichContext,
    WhichLines,
    WhichNewLines,
)
from skep.wire.client import CenterClient

#: Seconds that one call waits for the next line.
WAIT = 10.0
_WORDS = ("debug", "debug", "info", "warning", "error", "critical")
_COLORS = {"warning": "yellow", "error": "red", "critical": "red"}


class _ShownFields(msgspec.Struct):
    """The fields of a line that are printed."""

    exception: object = None


@dataclass(frozen=True, slots=True)
class LineSelection:
    """Which lines."""

    filter: str
    pattern: str
    level: int


class LogReader:
    """Prints to stdout."""

    def __init__(
        self, reach: CenterAddress, wanted: LineSelection, context: int = 0, *, as_json: bool
    ) -> None:
        self._reach = reach
        self._wanted = wanted
        self._context = context
        self._as_json = as_json
        self._clock = SystemClock()

    async def search(self, limit: int | None) -> None:
        """The newest lines, oldest first; without a limit all of them, newest first."""
        async with connected(self._reach) as client:
            if limit is None:
                await self._print_all(client)
                return
            lines, _ = await self._newest(client, limit)
            await self._print(client, reversed(lines))
            if not lines and limit:
                say(self._nothing())

    def _nothing(self) -> str:
        wanted = self._wanted
        if wanted.filter or wanted.pattern or wanted.level:
            return "no stored lines match; `skep logs --budgets` shows what is stored"
        return "no log lines are stored yet"

    async def _print_all(self, client: CenterClient) -> None:
        cursor, first = "", True
        while cursor or first:
            page = await self._page(client, cursor, PAGE_MAX)
            await self._print(client, page.lines)
            cursor, first = page.cursor, False

    async def _newest(self, client: CenterClient, limit: int) -> tuple[list[LogLine], int]:
        """(lines, newest first, and the position of the first call)."""
        lines: list[LogLine] = []
        page = await self._page(client, "", max(min(limit, PAGE_MAX), 1))
        position = page.position
        while True:
            lines += page.lines
            if len(lines) >= limit or not page.cursor:
                return lines[:limit], position
            page = await self._page(client, page.cursor, min(limit - len(lines), PAGE_MAX))

    async def _page(self, client: CenterClient, cursor: str, limit: int) -> LogPage:
        wanted = self._wanted
        asks = WhichLines(wanted.filter, wanted.pattern, wanted.level, cursor, limit)
        page = await with_retries(lambda: client.api.logs.search(asks), self._clock)
        if page.damaged:
            say(f"{page.damaged} pieces of logs are damaged; their lines are missing")
        return page

    async def follow(self, lines: int) -> None:
        """The newest lines, then each line that arrives, until the command is stopped."""
        async with connected(self._reach) as client:
            found, position = await self._newest(client, lines)
            await self._print(client, reversed(found))
            while True:
                position = await self._follow(client, position)

    async def _follow(self, client: CenterClient, position: int) -> int:
        wanted = self._wanted
        asks = WhichNewLines(wanted.filter, wanted.pattern, wanted.level, position, WAIT)
        new = await with_retries(lambda: client.api.logs.follow(asks), self._clock)
        await self._print(client, new.lines)
        return new.position

    async def _print(self, client: CenterClient, lines: Iterable[LogLine]) -> None:
        for number, line in enumerate(lines):
            if not self._context:
                self._show(line)
                continue
            if number:
                show_exact("--")
            around = await client.api.logs.context(_around(line, self._context))
            for near in around.lines or [line]:
                self._show(near, hit=near.offset == line.offset)

    def _show(self, line: LogLine, *, hit: bool = False) -> None:
        if self._as_json:
            show_exact(msgspec.json.encode(line).decode())
        else:
            show_exact(f"{'> ' if hit else '  ' if self._context else ''}{line_text(line)}")


def _around(line: LogLine, count: int) -> WhichContext:
    return WhichContext(
        line.source, line.kind, line.token, line.offset, line.run, line.agent, count, count
    )


def line_text(line: LogLine) -> str:
    """As text: time, level, who, text."""
    word = _WORDS[min(max(line.level, 0), 50) // 10]
    level = colored(word, _COLORS[word]) if word in _COLORS else word
    time = datetime.fromtimestamp(line.time).astimezone().strftime("%m-%d %H:%M:%S")
    names = [str(line.kind), line.agent, line.run or line.source]
    who = " ".join(dict.fromkeys(name for name in names if name))
    text = harmless_lines(line.text.encode())
    more = msgspec.convert(line.fields, _ShownFields, strict=False).exception
    tail = f"\n{harmless_lines(str(more).encode())}" if more else ""
    return f"{time} {level} {who}: {text}{tail}"


def show_budgets(reach: CenterAddress, *, as_json: bool) -> None:
    """Stored bytes, limits and dropped lines."""
    found = ask(reach, lambda api: api.logs.budgets())
    show_json(found) if as_json else show(budgets_text(found))


def budgets_text(found: LogBudgets) -> str:
    """As text."""
    head = (
        f"{size(found.bytes)} of {size(found.bytes_limit)}, kept for {age(found.age_limit)}\n"
        f"{found.stored:,} lines stored here, {found.duplicates:,} sent twice, "
        f"{found.stale:,} refused, {found.dropped:,} dropped"
    )
    rows = [
        (
            one.agent or "(centers)",
            size(one.bytes),
            one.pieces,
            found.delayed.get(one.agent, 0),
            found.agent_drops.get(one.agent, 0),
        )
        for one in found.agents
    ]
    return f"{head}\n\n{table(('AGENT', 'BYTES', 'PIECES', 'DELAYED', 'DROPPED'), rows)}"
