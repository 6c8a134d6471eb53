"""`logs`: how fast log lines are stored durably, and how fast a word is found in them.

Ours: 16 agents send batches of 250 lines to one intake; pieces in the SQL store of a center, on
disk (SQLite) before each answer, merging into large pieces with summaries included. Floor: the same
batches appended to a file, with an fsync for each. Then one corpus of `--lines` lines (8 million
are 1 GB of text) is stored and searched, and compared with `grep` over a file of the same lines.
SQLite's FTS5 gets an eighth of the lines, because it needs minutes for them.
"""

from __future__ import annotations

import asyncio
import os
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from bench.figures import Result, Sample, alternate, check, neat
from bench.log_corpus import ABSENT, CHINESE, TIMES, WORD, Corpus
from bench.log_peers import Fts5, append_synced, appender, grep
from bench.options import Options
from skep.logs.center.intake import IntakeRate, LogIntake
from skep.logs.center.merging import PieceMerger
from skep.logs.center.query import LogQuery
from skep.logs.center.search import LogSearch, SearchBudget
from skep.logs.line_format import encode_entry
from skep.model.logs import LogBatch, LogEntry, LogSource, LogSourceKind
from skep.runtime.clock import SystemClock
from skep.store.sql.store import SqlStore

AGENTS, BATCH = 16, 250
TAKEN = 200_000
#: Lines of a batch while the corpus is stored, and between two merges.
BULK, MERGE_EVERY = 4_000, 64_000
FTS_SHARE = 8
RATIO_BAR, RATE_BAR = 0.3, 20_000.0
FIRST_BAR, ALL_BAR = 1.0, 10.0
NO_LIMIT = IntakeRate(1e12, 1e12)
#: Texts have 127 bytes on average; one line per millisecond.
STEP = 0.001
_PAUSE = 0.05


class Logs:
    """A center's logs in its store, in a folder. `open` and `close` on the event loop."""

    def __init__(self, folder: Path) -> None:
        clock = SystemClock()
        self.store = SqlStore(f"sqlite:///{folder / 'skep.db'}")
        self.open, self.close = self.store.open, self.store.close
        self.pieces = self.store.logs
        self.intake = LogIntake(self.pieces, clock, NO_LIMIT)
        self.merger = PieceMerger(self.pieces, clock)
        self.search = LogSearch(self.pieces, clock)

    async def send(self, batches: Sequence[LogBatch]) -> None:
        """As an agent does: the next batch follows after the answer."""
        for batch in batches:
            await self.intake.take(batch)

    async def merge_beside(self) -> None:
        while True:
            await self.merger.step()
            await asyncio.sleep(_PAUSE)

    async def merge_all(self) -> None:
        while await self.merger.step():
            pass


def source(number: int) -> LogSource:
    return LogSource(LogSourceKind.AGENT, f"agent-{number}", "", f"agent-{number}")


def batches_of(count: int, size: int) -> Iterator[tuple[LogBatch, list[str]]]:
    """The corpus in batches of alternating agents, with the texts of each."""
    began, offsets = SystemClock().now() - count * STEP, [0] * AGENTS
    entries: list[LogEntry] = []
    for number, (level, text) in enumerate(Corpus(1, count).lines(), 1):
        entries.append(LogEntry(began + number * STEP, level, text))
        if len(entries) == size or number == count:
            agent = (number - 1) // size % AGENTS
            lines = b"\n".join(map(encode_entry, entries))
            yield (
                LogBatch(source(agent), 1, offsets[agent], lines),
                [entry.text for entry in entries],
            )
            offsets[agent] += len(entries)
            entries = []


def ours(batches: Sequence[LogBatch]) -> Sample:
    with tempfile.TemporaryDirectory(prefix="skep-bench-") as folder:
        return asyncio.run(_take_all(Logs(Path(folder)), batches))


async def _take_all(logs: Logs, batches: Sequence[LogBatch]) -> Sample:
    await logs.open()
    by_agent = [[one for one in batches if one.source == source(n)] for n in range(AGENTS)]
    begun, cpu = time.perf_counter(), time.process_time()
    merging = asyncio.create_task(logs.merge_beside())
    await asyncio.gather(*(logs.send(sent) for sent in by_agent))
    merging.cancel()
    await asyncio.gather(merging, return_exceptions=True)
    await logs.merge_all()
    seconds, used = time.perf_counter() - begun, time.process_time() - cpu
    check(TAKEN, logs.intake.figures.stored, "lines that were stored")
    await logs.close()
    return {"rate": TAKEN / seconds, "cpu_us": used / TAKEN * 1e6}


def floor(batches: Sequence[LogBatch]) -> Sample:
    with tempfile.TemporaryDirectory(prefix="skep-bench-") as folder:
        begun = time.perf_counter()
        append_synced(Path(folder, "plain.jsonl"), [batch.lines for batch in batches])
        return {"rate": TAKEN / (time.perf_counter() - begun)}


def searched(lines: int) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="skep-bench-") as name:
        folder = Path(name)
        logs, fts = Logs(folder), Fts5(folder / "fts.db")
        told = asyncio.run(_measured(logs, fts, folder / "plain.jsonl", lines))
        words = [(WORD, TIMES), (CHINESE, TIMES), (ABSENT, 0)]
        told["grep"] = grep(folder / "plain.jsonl", words)
        told["fts5"] = fts.told([WORD, CHINESE, ABSENT])
        return told


async def _measured(logs: Logs, fts: Fts5, plain: Path, lines: int) -> dict[str, Any]:
    await logs.open()
    told = await _stored(logs, fts, plain, lines)
    told["ours"] |= await _searches(logs)
    await logs.close()
    return told


async def _stored(logs: Logs, fts: Fts5, plain: Path, lines: int) -> dict[str, Any]:
    """Store the corpus in all three."""
    size = done = 0
    with appender(plain) as beside:
        for batch, texts in batches_of(lines, BULK):
            await logs.intake.take(batch)
            os.write(beside, batch.lines + b"\n")
            size += sum(len(text.encode()) for text in texts)
            done += len(texts)
            if fts.lines < lines // FTS_SHARE:
                fts.add(texts)
            if done % MERGE_EVERY < BULK:
                await logs.merger.step()
    await logs.merge_all()
    check(lines, logs.intake.figures.stored, "lines that were stored")
    await logs.pieces.purge(SystemClock().now() + 1)
    stored = sum(one.bytes for one in await logs.pieces.stored())
    return {"lines": lines, "texts_mb": neat(size / 1e6), "ours": {"disk_mb": neat(stored / 1e6)}}


async def _searches(logs: Logs) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, query, times in (
        ("word", LogQuery(words=(WORD,)), TIMES),
        ("chinese", LogQuery(words=(CHINESE,)), TIMES),
        ("absent", LogQuery(words=(ABSENT,)), 0),
        ("pattern", LogQuery(pattern="quetzal[a-z]+tlus"), TIMES),
        ("number", LogQuery(words=("987654321987",)), 0),
    ):
        first, _, _ = await _timed(logs.search, query, 1, times == 0)
        seconds, hits, read = await _timed(logs.search, query, 100, True)
        check(times, hits, f"lines found by {name}")
        found[name] = {"first": neat(first), "all": neat(seconds), "pieces_read": read}
    return found


async def _timed(
    search: LogSearch, query: LogQuery, limit: int, to_the_end: bool
) -> tuple[float, int, int]:
    """(seconds, lines, pieces that were read), call by call as a client does."""
    begun, cursor, hits, read = time.perf_counter(), "", 0, 0
    while True:
        found = await search.search(query, cursor, limit, SearchBudget())
        cursor, hits, read = found.cursor, hits + len(found.lines), read + found.read
        if not cursor or (hits and not to_the_end):
            return time.perf_counter() - begun, hits, read


def within(told: dict[str, Any]) -> bool:
    """Whether the searches are within their bars."""
    found = told["ours"]
    first = max(found[name]["first"] for name in ("word", "chinese"))
    every = max(found[name]["all"] for name in ("word", "chinese", "absent"))
    return bool(first <= FIRST_BAR and every <= ALL_BAR)


def run(options: Options) -> Result:
    batches = [batch for batch, _ in batches_of(TAKEN, BATCH)]
    found = alternate(
        {"ours": lambda: ours(batches), "floor": lambda: floor(batches)}, options.rounds
    )
    told = searched(options.lines)
    rate = found["ours"]["rate"].median
    ratio = rate / found["floor"]["rate"].median
    return Result(
        name="logs",
        unit="lines/s",
        ours=rate,
        peer=None,
        floor=found["floor"]["rate"].median,
        ratio=ratio,
        bar=RATIO_BAR,
        ok=ratio >= RATIO_BAR and rate >= RATE_BAR and within(told),
        meaning="our lines/s, durable and merged / a plain append with an fsync per batch",
        more={
            "rate_bar": RATE_BAR,
            "cpu_us_per_line": found["ours"]["cpu_us"].told(),
            "search": told,
            "first_bar_s": FIRST_BAR,
            "all_bar_s": ALL_BAR,
            "agents": AGENTS,
            "batch": BATCH,
            "spread": {name: found[name]["rate"].told() for name in ("ours", "floor")},
            "rounds": options.rounds,
        },
    )
