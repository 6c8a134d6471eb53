"""A7, fault 12: results that no center took wait on disk, bounded, oldest first."""

from __future__ import annotations

import logging
import os
import time
from pathlib import Path

import pytest

from skep.agent.work.outbox import Outbox
from skep.model.block import BlockReport, Held
from skep.model.request import Outcome
from skep.wire.messages import Report


def report(block: int, *, final: bool = True, size: int = 1000, results: int = 2) -> Report:
    outcomes = [Outcome(block * 10 + one) for one in range(results)]
    return Report("a", [BlockReport(block, 1, outcomes, final, b"f" * size)])


def opened(folder: Path, limit: int = 2**20, agent: str = "a") -> Outbox:
    outbox = Outbox(folder, limit, agent)
    outbox.open()
    return outbox


def emptied(outbox: Outbox) -> list[int]:
    blocks = []
    while kept := outbox.oldest():
        blocks += [block.block for block in kept.report.blocks]
        outbox.remove(kept.path)
    return blocks


def test_reports_come_back_whole_and_oldest_first(tmp_path: Path) -> None:
    outbox = opened(tmp_path)
    for block in (3, 1, 2):
        outbox.put(report(block))
    kept = outbox.oldest()
    assert kept is not None
    assert kept.report == report(3)
    assert outbox.results == 6
    assert outbox.held() == {Held(1, 1), Held(2, 1), Held(3, 1)}
    assert emptied(outbox) == [3, 1, 2]
    assert (len(outbox), outbox.bytes, list(tmp_path.iterdir())) == (0, 0, [])


def test_it_survives_a_restart_and_goes_on_numbering(tmp_path: Path) -> None:
    first = opened(tmp_path)
    first.put(report(1))
    first.put(report(2))
    second = opened(tmp_path)
    second.put(report(3))
    assert second.results == 6
    assert emptied(second) == [1, 2, 3]


def test_a_full_outbox_drops_the_oldest_counts_and_names_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    outbox = opened(tmp_path, limit=3500)
    with caplog.at_level(logging.WARNING):
        for block in range(1, 6):
            outbox.put(report(block))
    assert outbox.dropped == 4
    assert outbox.bytes <= 3500
    assert "dropped 000000000001.report with 2 results of blocks 1" in caplog.text
    assert outbox.missing() == {Held(1, 1), Held(2, 1)}
    assert emptied(outbox) == [3, 4, 5]


def test_what_follows_a_dropped_part_does_not_claim_to_be_the_last(tmp_path: Path) -> None:
    """Otherwise the center would close a block of which results are missing."""
    outbox = opened(tmp_path, limit=3500)
    for _ in range(2):
        outbox.put(report(1, final=False))
    outbox.put(report(1))
    outbox.put(report(2))  # makes the first part go
    restarted = opened(tmp_path, limit=3500)
    kept = []
    while one := restarted.oldest():
        kept.append((one.report.blocks[0].block, one.report.blocks[0].final, one.cut_short))
        restarted.remove(one.path)
    assert kept == [(1, False, ()), (1, False, (Held(1, 1),)), (2, True, ())]


def test_a_report_larger_than_the_whole_outbox_is_counted_as_dropped(tmp_path: Path) -> None:
    outbox = opened(tmp_path, limit=500)
    outbox.put(report(1))
    assert (len(outbox), outbox.dropped, outbox.missing()) == (0, 2, {Held(1, 1)})


@pytest.mark.parametrize("damage", ["cut", "flip", "empty"])
def test_a_torn_file_is_set_aside_and_never_fatal(tmp_path: Path, damage: str) -> None:
    outbox = opened(tmp_path)
    for block in (1, 2, 3):
        outbox.put(report(block))
    torn = sorted(tmp_path.iterdir())[1]
    data = torn.read_bytes()
    flipped = data[:-5] + bytes([data[-5] ^ 1]) + data[-4:]
    torn.write_bytes({"cut": data[: len(data) // 2], "flip": flipped, "empty": b""}[damage])
    restarted = opened(tmp_path)
    assert (restarted.torn, len(restarted)) == (1, 2)
    assert emptied(restarted) == [1, 3]
    assert [path.suffix for path in tmp_path.iterdir()] == [".torn"]
    # The one that ran on finds it too, when its turn comes.
    assert emptied(outbox) == []


def test_half_written_files_of_a_killed_agent_are_swept(tmp_path: Path) -> None:
    (tmp_path / "000000000007.report.new").write_bytes(b"half")
    outbox = opened(tmp_path)
    assert (len(outbox), outbox.torn, list(tmp_path.iterdir())) == (0, 0, [])


def test_a_disk_that_takes_nothing_drops_and_counts(tmp_path: Path) -> None:
    outbox = opened(tmp_path / "box")
    (tmp_path / "box").rmdir()
    (tmp_path / "box").write_text("not a folder")
    outbox.put(report(1))
    assert (len(outbox), outbox.dropped) == (0, 2)


def test_leases_that_are_over_are_renewed_no_longer_but_still_sent(tmp_path: Path) -> None:
    outbox = opened(tmp_path)
    outbox.put(report(1))
    outbox.forget_leases([Held(1, 1)])
    assert outbox.held() == set()
    assert emptied(outbox) == [1]


def test_what_no_center_will_ever_take_is_set_aside(tmp_path: Path) -> None:
    outbox = opened(tmp_path)
    outbox.put(report(1))
    kept = outbox.oldest()
    assert kept is not None
    outbox.refuse(kept.path)
    assert (len(outbox), outbox.dropped, outbox.oldest()) == (0, 2, None)


def test_a_report_of_another_identity_is_set_aside(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """R7: with a count and a log line; its leases are not renewed, and later reports go."""
    opened(tmp_path).put(report(1))
    with caplog.at_level(logging.WARNING):
        outbox = opened(tmp_path, agent="b")
    assert (len(outbox), outbox.foreign, outbox.held()) == (0, 2, set())
    assert "results of agent a; this is agent b" in caplog.text
    assert [file.suffix for file in tmp_path.iterdir()] == [".foreign"]
    mine = report(2)
    mine.agent = "b"
    outbox.put(mine)
    assert emptied(outbox) == [2]


def test_how_long_the_oldest_report_waits(tmp_path: Path) -> None:
    """R7: over a restart too, by the time of its file."""
    now = [100.0]
    outbox = Outbox(tmp_path, 2**20, "a", lambda: now[0])
    outbox.open()
    assert outbox.age == 0.0
    outbox.put(report(1))
    now[0] += 30
    outbox.put(report(2))
    assert outbox.age == 30.0
    (first, *_) = sorted(tmp_path.iterdir())
    os.utime(first, (time.time() - 500, time.time() - 500))
    assert 499 < opened(tmp_path).age < 600
