"""The disk buffer of agents: a kill loses nothing that was appended, and no offset is reused."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from skep.logs.agent.buffer import BufferBudget, LogBuffer
from skep.logs.agent.spool import Spool
from skep.logs.line_format import decode_entries
from skep.model.logs import LogBatch, LogEntry, LogSource, LogSourceKind

SOURCE = LogSource(LogSourceKind.AGENT, "home", "", "home")
BUDGET = 2**20


def opened(folder: Path, budget: int = BUDGET) -> Spool:
    spool = Spool(folder, SOURCE, 1, budget)
    spool.open()
    return spool


def drained(spool: Spool, limit: int = 1000) -> list[tuple[int, bytes]]:
    """(offset, line) of everything that waits, acknowledged batch by batch."""
    found: list[tuple[int, bytes]] = []
    while batch := spool.batch(limit):
        lines = batch.lines.split(b"\n")
        found += enumerate(lines, batch.first)
        spool.acknowledge(batch.first + len(lines))
    return found


def test_lines_come_out_as_they_went_in(tmp_path: Path) -> None:
    spool = opened(tmp_path / "s")
    lines = [b"line %d" % number for number in range(300)]
    spool.append(lines[:200])
    spool.append(lines[200:])
    assert spool.waiting == 300
    assert drained(spool) == list(enumerate(lines))
    assert (spool.waiting, spool.dropped, spool.batch(1)) == (0, 0, None)


def test_what_is_not_acknowledged_comes_again(tmp_path: Path) -> None:
    spool = opened(tmp_path / "s")
    spool.append([b"a", b"b", b"c"])
    first = spool.batch(4)
    assert first == spool.batch(4) == LogBatch(SOURCE, 1, 0, b"a\nb")
    spool.acknowledge(1)
    assert spool.batch(100) == LogBatch(SOURCE, 1, 1, b"b\nc")


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_killed_at_any_byte(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    """The file ends anywhere after the last sync: whole lines stay, the torn one is cut off, and
    what comes later never gets an offset that was handed out before."""
    folder = tmp_path_factory.mktemp("spool") / "s"
    texts = data.draw(st.lists(st.binary(max_size=30).map(lambda b: b.replace(b"\n", b""))))
    sent = data.draw(st.integers(0, len(texts)))
    spool = opened(folder)
    spool.append(texts[:sent])
    handed_out = spool.batch(2**20)
    synced = sum(path.stat().st_size for path in folder.iterdir())
    spool.append(texts[sent:])
    written = sum(path.stat().st_size for path in folder.iterdir())
    end = data.draw(st.integers(synced, written))
    for path in folder.iterdir():
        os.truncate(path, end)
    again = opened(folder)
    whole = again.next
    assert sent <= whole <= len(texts)
    assert again.torn == (end != sum(8 + len(text) for text in texts[:whole]))
    again.append([b"after"])
    assert drained(again) == [*enumerate(texts[:whole]), (whole, b"after")]
    assert (handed_out is None) == (sent == 0)
    shutil.rmtree(folder)


@settings(max_examples=40, deadline=None)
@given(at=st.integers(0, 159), bit=st.integers(0, 7))
def test_a_flipped_bit_ends_the_file_there(
    tmp_path_factory: pytest.TempPathFactory, at: int, bit: int
) -> None:
    folder = tmp_path_factory.mktemp("spool") / "s"
    opened(folder).append([b"%012d" % number for number in range(8)])
    path = next(folder.iterdir())
    data = bytearray(path.read_bytes())
    data[at] ^= 1 << bit
    path.write_bytes(data)
    again = opened(folder)
    assert again.next == at // 20
    assert drained(again) == [(number, b"%012d" % number) for number in range(at // 20)]


def test_zeros_at_the_end_are_not_lines(tmp_path: Path) -> None:
    opened(tmp_path / "s").append([b"a"])
    path = next((tmp_path / "s").iterdir())
    path.write_bytes(path.read_bytes() + bytes(4096))
    again = opened(tmp_path / "s")
    assert (again.next, again.torn) == (1, 1)


WRITER = """
import sys
from pathlib import Path
from skep.logs.agent.spool import Spool
from skep.model.logs import LogSource, LogSourceKind
spool = Spool(Path(sys.argv[1]), LogSource(LogSourceKind.AGENT, "home", "", "home"), 1, 2**30)
spool.open()
number = 0
while True:
    spool.append([b"%d" % (number + more) for more in range(10)])
    number += 10
    print(number, flush=True)
"""


def test_kill_9_loses_nothing_that_was_appended(tmp_path: Path) -> None:
    command = [sys.executable, "-c", WRITER, str(tmp_path / "s")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for _ in range(200):
            told = int(process.stdout.readline())
        process.send_signal(signal.SIGKILL)
        told = max([told, *(int(line) for line in process.stdout if line.endswith("\n"))])
    found = drained(opened(tmp_path / "s"), 2**20)
    assert len(found) >= told
    assert found == [(number, b"%d" % number) for number in range(len(found))]


def test_a_line_is_synced_before_it_is_handed_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a power cut takes a line that a center has, and its offset is given to another."""
    spool = opened(tmp_path / "s")
    synced: list[str] = []
    real = os.fsync

    def noted(file: int) -> None:
        synced.append(Path(f"/proc/self/fd/{file}").readlink().name)
        real(file)

    monkeypatch.setattr(os, "fsync", noted)
    spool.append([b"a"])
    assert synced == []
    assert spool.batch(100) is not None
    assert synced == [f"{0:020d}", "s"]
    spool.batch(100)
    assert len(synced) == 2


def test_over_budget_the_oldest_go_and_are_counted(tmp_path: Path) -> None:
    spool = opened(tmp_path / "s", budget=64 * 1024)
    for number in range(5000):
        spool.append([b"%0100d" % number])
    assert spool.size <= 64 * 1024
    found = drained(spool)
    assert [offset for offset, _ in found] == list(range(spool.dropped, 5000))
    assert spool.dropped > 4000


def test_one_call_with_more_than_the_budget(tmp_path: Path) -> None:
    spool = opened(tmp_path / "s", budget=64 * 1024)
    spool.append([b"%0100d" % number for number in range(5000)])
    assert spool.size <= 64 * 1024
    assert drained(spool)[0][0] == spool.dropped > 0


def test_acknowledged_lines_do_not_count_as_dropped(tmp_path: Path) -> None:
    spool = opened(tmp_path / "s", budget=16 * 1024)
    for number in range(1000):
        spool.append([b"%0100d" % number])
        spool.acknowledge(number + 1)
    assert spool.dropped == 0


def test_a_disk_that_refuses_leaves_a_gap(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spool = opened(tmp_path / "s")
    spool.append([b"a"])
    real = os.write

    def half(file: int, data: memoryview) -> int:
        if len(data) > 3:
            return real(file, data[:3])
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "write", half)
    with pytest.raises(OSError, match="No space"):
        spool.append([b"bb", b"cc"])
    monkeypatch.undo()
    spool.append([b"d"])
    assert spool.dropped == 2
    assert drained(spool) == [(0, b"a"), (3, b"d")]
    assert opened(tmp_path / "s").torn == 0


def test_a_file_that_could_not_be_made_is_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing before it was acknowledged: its offset is above what a center has."""
    opened(tmp_path / "s").append([b"a"])
    spool = opened(tmp_path / "s")
    spool.acknowledge(1)
    spool.next = 5  # as after lines that were dropped

    def refuse(*_: object) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "open", refuse)
    with pytest.raises(OSError, match="No space"):
        spool.append([b"b"])
    monkeypatch.undo()
    assert spool.batch(100) is None
    spool.append([b"c"])
    assert drained(spool) == [(6, b"c")]


def test_an_offset_beyond_the_end_is_not_used_again(tmp_path: Path) -> None:
    spool = opened(tmp_path / "s")
    spool.append([b"a"])
    spool.acknowledge(10)
    spool.append([b"b"])
    assert drained(spool) == [(10, b"b")]


def source(name: str) -> LogSource:
    return LogSource(LogSourceKind.DOWNLOADER, name, "run", "home")


def entries(count: int, size: int = 10) -> list[LogEntry]:
    return [LogEntry(float(number), 20, "x" * size) for number in range(count)]


def test_a_source_that_floods_drops_its_own_lines_only(tmp_path: Path) -> None:
    buffer = LogBuffer(tmp_path, BufferBudget(each=2**20, total=256 * 1024))
    buffer.open()
    buffer.append(source("quiet"), 1, entries(50))
    buffer.append(source("loud"), 1, entries(5000, 200))
    batches = {batch.source.name: batch for batch in buffer.batches(2**20)}
    assert len(decode_entries(batches["quiet"].lines)) == 50
    assert batches["quiet"].first == 0
    assert batches["loud"].first == buffer.dropped > 0
    assert buffer.size <= 256 * 1024


def test_older_tokens_are_sent_first_and_survive_a_restart(tmp_path: Path) -> None:
    buffer = LogBuffer(tmp_path, BufferBudget())
    buffer.open()
    buffer.append(source("a"), 1, entries(3))
    buffer.close()
    again = LogBuffer(tmp_path, BufferBudget())
    again.open()
    again.append(source("a"), 2, entries(2))
    (batch,) = again.batches(2**20)
    assert (batch.token, len(decode_entries(batch.lines))) == (1, 3)
    again.acknowledge(batch, 3)
    (batch,) = again.batches(2**20)
    assert (batch.token, again.waiting) == (2, 2)


def test_what_an_earlier_process_left_goes_when_it_is_sent(tmp_path: Path) -> None:
    buffer = LogBuffer(tmp_path, BufferBudget())
    buffer.open()
    buffer.append(source("a"), 1, entries(3))
    buffer.close()
    again = LogBuffer(tmp_path, BufferBudget())
    again.open()
    again.append(source("a"), 2, entries(2))
    for batch in again.batches(2**20):
        again.acknowledge(batch, 3)
    assert [path.name.split("-")[1] for path in tmp_path.iterdir()] == ["2"]
    assert again.refused == 0


def test_an_ended_source_leaves_no_files_once_it_is_stored(tmp_path: Path) -> None:
    buffer = LogBuffer(tmp_path, BufferBudget())
    buffer.open()
    buffer.append(source("a"), 1, entries(3))
    assert not buffer.end(source("a"), 1)
    (batch,) = buffer.batches(2**20)
    buffer.acknowledge(batch, 3)
    assert buffer.end(source("a"), 1)
    assert list(tmp_path.iterdir()) == []


def test_refused_lines_are_counted_and_removed(tmp_path: Path) -> None:
    buffer = LogBuffer(tmp_path, BufferBudget())
    buffer.open()
    buffer.append(source("a"), 1, entries(3))
    (batch,) = buffer.batches(2**20)
    buffer.refuse(batch)
    assert (buffer.refused, buffer.waiting, list(tmp_path.iterdir())) == (3, 0, [])
