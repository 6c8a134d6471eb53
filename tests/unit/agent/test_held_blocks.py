"""The bookkeeping of held blocks and the rules of appetite, without any I/O."""

from __future__ import annotations

import msgspec
import pytest

from skep.agent.work import held_blocks as holding_module
from skep.agent.work.held_blocks import HeldBlock, HeldBlocks
from skep.agent.work.prefetch import DownloadRate, blocks_wanted, requests_wanted
from skep.agent.work.report_splitting import split_report
from skep.downloaders.ports import Fetched
from skep.model.block import BlockReport, Held, Leased
from skep.model.failures.failure_class import FailureClass
from skep.model.request import Outcome, Work
from skep.testing.clock import ManualClock


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def holding(clock: ManualClock) -> HeldBlocks:
    return HeldBlocks(clock.monotonic)


def lease(
    holding: HeldBlocks, block: int = 1, ids: range = range(3), token: int = 1, run: str = "r"
) -> HeldBlock:
    works = [Work(one, f"http://x/{one}") for one in ids]
    return holding.add(Leased(block, token, run, len(works), b""), works)


def finish(block: HeldBlock, *ids: int, frames: bytes = b"", failure: str = "") -> None:
    for one in ids:
        block.done(Fetched(Outcome(one, failure=failure), frames))


def started(holding: HeldBlocks, limit: int = 100) -> list[int]:
    ids: list[int] = []
    while batch := holding.next_works(limit - len(ids)):
        ids += [work.id for work in batch[1]]
    return ids


def test_work_is_started_in_block_order_and_never_beyond_the_limit(holding: HeldBlocks) -> None:
    lease(holding, 1, range(3))
    lease(holding, 2, range(3, 6))
    assert started(holding, 4) == [0, 1, 2, 3]
    assert (holding.active, holding.queued) == (4, 2)
    assert started(holding, 10) == [4, 5]


def test_requests_that_ended_in_an_earlier_lease_are_skipped(holding: HeldBlocks) -> None:
    works = [Work(one, "http://x/") for one in range(4)]
    holding.add(Leased(1, 2, "r", 4, b"", skip=[0, 2]), works)
    assert started(holding) == [1, 3]


def test_a_block_with_nothing_left_to_do_is_reported_at_once(
    holding: HeldBlocks, clock: ManualClock
) -> None:
    holding.add(Leased(1, 2, "r", 1, b"", skip=[0]), [Work(0, "http://x/")])
    assert holding.ready
    assert holding.take_due(clock.monotonic(), 1.0) == [BlockReport(1, 2, [], True)]


def test_a_finished_block_is_reported_once_with_its_frames_in_place(
    holding: HeldBlocks, clock: ManualClock
) -> None:
    block = lease(holding)
    started(holding)
    finish(block, 2, frames=b"two")
    finish(block, 0)
    assert holding.take_due(clock.monotonic(), 1.0) == []
    finish(block, 1, frames=b"one!")
    (report,) = holding.take_due(clock.monotonic(), 1.0)
    places = {o.id: report.frames[o.offset : o.offset + o.length] for o in report.outcomes}
    assert report.final
    assert places == {0: b"", 1: b"one!", 2: b"two"}
    assert holding.take_due(clock.monotonic() + 9, 1.0) == []
    assert holding.unreported == 7
    holding.settle(report, "stored")
    assert (holding.blocks, holding.unreported, holding.lost) == (0, 0, 0)


def test_a_slow_block_is_reported_in_parts_one_at_a_time(
    holding: HeldBlocks, clock: ManualClock
) -> None:
    block = lease(holding)
    started(holding)
    finish(block, 0)
    assert holding.next_due(1.0) == clock.monotonic() + 1.0
    clock.advance(1.0)
    (part,) = holding.take_due(clock.monotonic(), 1.0)
    assert not part.final
    finish(block, 1, 2)
    assert holding.take_due(clock.monotonic(), 0.0) == []
    holding.settle(part, "stored")
    (last,) = holding.take_due(clock.monotonic(), 1.0)
    assert last.final
    assert [o.id for o in last.outcomes] == [1, 2]


def test_large_results_do_not_wait_and_reports_stay_bounded(
    holding: HeldBlocks, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(holding_module, "REPORT_BYTES", 10)
    first, second = lease(holding, 1), lease(holding, 2, range(3, 6))
    started(holding)
    finish(first, 0, frames=b"x" * 10)
    finish(second, 3, frames=b"y" * 10)
    (one,) = holding.take_due(clock.monotonic(), 9.0)
    (two,) = holding.take_due(clock.monotonic(), 9.0)
    assert (one.block, one.final, two.block) == (1, False, 2)


def test_a_stale_verdict_drops_the_block_and_counts_it(
    holding: HeldBlocks, clock: ManualClock
) -> None:
    block = lease(holding)
    started(holding)
    finish(block, 0)
    (part,) = holding.take_due(clock.monotonic() + 1, 1.0)
    holding.settle(part, "stale")
    finish(block, 1, 2, frames=b"late")
    assert (holding.blocks, holding.lost, holding.discarded, holding.active) == (0, 1, 2, 0)
    assert holding.unreported == 0


def test_a_part_that_arrived_twice_does_not_end_the_block(
    holding: HeldBlocks, clock: ManualClock
) -> None:
    block = lease(holding)
    started(holding)
    finish(block, 0)
    (part,) = holding.take_due(clock.monotonic() + 1, 1.0)
    holding.settle(part, "duplicate")
    assert holding.held() == [Held(1, 1)]


def test_a_lost_block_is_dropped_by_its_token_only(holding: HeldBlocks) -> None:
    lease(holding, 1, token=1)
    lease(holding, 1, token=2)
    assert holding.lost == 1
    assert holding.lose([Held(1, 1)]) == 0
    assert holding.held() == [Held(1, 2)]
    assert holding.lose([Held(1, 2)]) == 1
    assert started(holding) == []


def test_a_block_whose_last_report_is_under_way_waits_for_its_verdict(
    holding: HeldBlocks, clock: ManualClock
) -> None:
    block = lease(holding)
    started(holding)
    finish(block, 0, 1, 2)
    (report,) = holding.take_due(clock.monotonic(), 1.0)
    assert holding.lose([Held(1, 1)]) == 0
    holding.settle(report, "stored")
    assert (holding.lost, holding.blocks) == (0, 0)


def test_withdrawn_blocks_report_what_ended_and_then_go_back(
    holding: HeldBlocks, clock: ManualClock
) -> None:
    block = lease(holding)
    holding.next_works(2)
    finish(block, 0)
    assert holding.withdraw() == 1
    assert holding.take_returns() == []
    finish(block, 1, failure=FailureClass.LOST)
    (part,) = holding.take_due(clock.monotonic(), 1.0)
    assert [o.id for o in part.outcomes] == [0]
    assert not part.final
    assert holding.take_returns() == []
    holding.settle(part, "stored")
    assert holding.take_returns() == [Held(1, 1)]
    assert holding.blocks == 0


def test_a_block_over_which_a_downloader_died_is_left_to_its_lease(
    holding: HeldBlocks, clock: ManualClock
) -> None:
    """Fault 34: what was done is kept, and the loss is the center's to count."""
    block = lease(holding)
    started(holding)
    finish(block, 0)
    finish(block, 1, 2, failure=FailureClass.LOST)
    assert holding.broken == {"r"}
    (part,) = holding.take_due(clock.monotonic(), 1.0)
    assert (part.final, [o.id for o in part.outcomes]) == (False, [0])
    holding.settle(part, "stored")
    assert holding.take_returns() == []
    assert (holding.blocks, holding.lost) == (0, 1)


def test_only_the_blocks_of_one_run_are_withdrawn(holding: HeldBlocks) -> None:
    lease(holding, 1, run="a")
    lease(holding, 2, range(3, 6), run="b")
    holding.withdraw("a")
    assert holding.take_returns() == [Held(1, 1)]
    assert started(holding) == [3, 4, 5]


def test_a_draining_agent_gives_back_what_still_arrives(holding: HeldBlocks) -> None:
    holding.closing = True
    lease(holding)
    assert holding.take_returns() == [Held(1, 1)]


def test_a_block_with_a_dropped_part_never_claims_to_be_complete(
    holding: HeldBlocks, clock: ManualClock
) -> None:
    block = lease(holding)
    started(holding)
    finish(block, 0)
    (part,) = holding.take_due(clock.monotonic() + 1, 1.0)
    holding.spilled(part)
    holding.mark_gaps([Held(1, 1)])
    finish(block, 1, 2)
    (rest,) = holding.take_due(clock.monotonic(), 1.0)
    assert not rest.final
    holding.settle(rest, "stored")
    assert holding.take_returns() == [Held(1, 1)]


def test_an_idle_agent_asks_for_its_concurrency_and_the_blocks_ahead() -> None:
    target = requests_wanted(active=0, concurrency=64, ahead=200, rate=0)
    assert blocks_wanted(0, target, 100.0) == 3


@pytest.mark.parametrize(
    ("queued", "rate", "size", "want"),
    [
        (200, 0, 100, 0),
        (101, 0, 100, 0),
        (100, 0, 100, 1),
        (0, 0, 100, 2),
        (0, 3000, 100, 15),
        (0, 3000, 1, 64),
    ],
)
def test_a_busy_agent_asks_early_and_by_its_pace(
    queued: int, rate: float, size: float, want: int
) -> None:
    target = requests_wanted(active=64, concurrency=64, ahead=200, rate=rate)
    assert blocks_wanted(queued, target, size) == want


def test_small_blocks_still_leave_a_successor_for_every_running_download() -> None:
    target = requests_wanted(active=8, concurrency=8, ahead=2, rate=0)
    assert blocks_wanted(9, target, 1.0) == 0
    assert blocks_wanted(8, target, 1.0) == 8


def test_the_pace_follows_what_happens() -> None:
    pace = DownloadRate(0.0)
    for second in range(1, 11):
        pace.note_finished(second * 500, float(second))
    assert pace.rate == pytest.approx(500, rel=0.01)
    pace.note_block(10)
    assert pace.block_size == 10


def test_a_report_that_is_too_large_loses_its_largest_result_only() -> None:
    outcomes = [Outcome(1, offset=0, length=2), Outcome(2, offset=2, length=5), Outcome(3)]
    outcomes.append(Outcome(4, offset=7, length=1))
    report = BlockReport(9, 1, outcomes, True, b"aaBBBBBc")
    before = msgspec.msgpack.encode(report)
    smaller = split_report(report)
    assert smaller is not None
    assert smaller.frames == b"aac"
    assert [(o.id, o.failure, o.offset, o.length) for o in smaller.outcomes] == [
        (1, "", 0, 2),
        (2, "limit", 0, 0),
        (3, "", 0, 0),
        (4, "", 2, 1),
    ]
    assert msgspec.msgpack.encode(report) == before
    assert split_report(BlockReport(9, 1, [Outcome(1)], True)) is None
