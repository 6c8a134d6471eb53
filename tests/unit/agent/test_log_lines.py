"""Log lines on an agent before a center has them: bounded, on disk, named when dropped (R4)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest

from skep.agent import log_lines
from skep.agent.log_lines import AgentLogs
from skep.logs.line_format import decode_entries, make_entry
from skep.model.logs import LogBatch, LogSourceKind
from skep.settings import LogSettings
from skep.testing.clock import ManualClock
from skep.wire.client import CenterClient

NOW = 1_700_000_000.0


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(NOW)


def logs_in(folder: Path, clock: ManualClock, **settings: Any) -> AgentLogs:
    client = CenterClient(["http://127.0.0.1:9"], "token", clock, Random(1))
    logs = AgentLogs("a1", folder, LogSettings(**settings), client, clock, Random(1))
    logs.open()
    return logs


def waiting(logs: AgentLogs) -> Iterator[tuple[str, int, list[str]]]:
    """(name, token, texts) of each batch that would be sent now."""
    batches: list[LogBatch] = logs._batches()
    for batch in batches:
        texts = [entry.text for entry in decode_entries(batch.lines)]
        yield batch.source.name, batch.token, texts


def test_output_is_cut_into_lines_and_made_harmless(tmp_path: Path, clock: ManualClock) -> None:
    logs = logs_in(tmp_path, clock)
    feed = logs.of_run(LogSourceKind.APP, "tick-1", "tick-1/0")
    feed(b"one\ntw")
    feed(b"o password=hunter2\nnul \0\xff\nrest")
    logs.code_wrote("code-1", "said")
    logs.put(make_entry(NOW, 20, "own"))
    logs._store()
    assert {name: texts for name, _, texts in waiting(logs)} == {
        "tick-1/0": ["one", "two password=***", "nul \\x00\\xff"],
        "code-1": ["said"],
        "a1": ["own"],
    }


def test_a_line_without_an_end_is_cut(tmp_path: Path, clock: ManualClock) -> None:
    logs = logs_in(tmp_path, clock)
    logs.of_run(LogSourceKind.APP, "tick-1")(b"x" * 10_000_000)
    logs._store()
    ((_, _, (text,)),) = waiting(logs)
    assert text.endswith("bytes cut]")


def test_a_source_that_floods_drops_its_own_lines(tmp_path: Path, clock: ManualClock) -> None:
    logs = logs_in(tmp_path, clock)
    flood = logs.of_run(LogSourceKind.APP, "loud-1")
    flood(b"x\n" * (log_lines.QUEUED_OF_SOURCE + 5))
    logs.put(make_entry(NOW, 20, "own"))
    logs._store()
    found = {name: texts for name, _, texts in waiting(logs)}
    assert found["a1"] == ["own"]
    assert len(found["loud-1"]) == log_lines.QUEUED_OF_SOURCE + 1
    assert found["loud-1"][-1].startswith("5 lines dropped")
    assert logs.dropped == 5


def test_the_disk_is_bounded_and_drops_are_counted(tmp_path: Path, clock: ManualClock) -> None:
    logs = logs_in(tmp_path, clock, spool_bytes=100_000, source_bytes=50_000)
    for _ in range(20):
        logs.of_run(LogSourceKind.APP, "loud-1")(b"y" * 1000 + b"\n")
        logs.of_run(LogSourceKind.APP, "loud-1")(b"z" * 9000 + b"\n")
        logs._store()
    assert logs.buffer.size <= 50_000 + 20_000
    assert logs.dropped > 0


def test_a_new_process_sends_what_is_left_first_under_its_old_token(
    tmp_path: Path, clock: ManualClock
) -> None:
    """kill -9: what was stored on disk is sent by the next process; tokens only grow."""
    first = logs_in(tmp_path, clock)
    first.put(make_entry(NOW, 20, "left"))
    first._store()
    second = logs_in(tmp_path, clock)
    second.put(make_entry(NOW, 20, "new"))
    second._store()
    ((_, old, texts),) = waiting(second)
    assert (old, texts) == (int(NOW), ["left"])
    (batch,) = second._batches()
    second.buffer.acknowledge(batch, 1)
    ((_, new, texts),) = waiting(second)
    assert (new, texts) == (int(NOW) + 1, ["new"])


def test_a_lost_folder_gets_a_newer_token(tmp_path: Path, clock: ManualClock) -> None:
    before = logs_in(tmp_path / "before", clock)._token
    clock.advance(10)
    assert logs_in(tmp_path / "after", clock)._token > before


def test_nothing_is_kept_when_it_is_switched_off(tmp_path: Path, clock: ManualClock) -> None:
    client = CenterClient(["http://127.0.0.1:9"], "token", clock, Random(1))
    logs = AgentLogs("a1", tmp_path / "x", LogSettings(store=False), client, clock, Random(1))
    logs.open()
    logs.put(make_entry(NOW, 20, "own"))
    logs.close()
    assert not (tmp_path / "x").exists()
