"""Reduces a block's report that a center refused as too large. Pure.

Run by agents when a report was refused for its size. It must never lose an outcome: bytes are
dropped, results stay.
"""

from __future__ import annotations

from msgspec.structs import replace

from skep.model.block import BlockReport
from skep.model.failures.failure_class import FailureClass
from skep.model.request import Outcome


def split_report(report: BlockReport) -> BlockReport | None:
    """The same report without the frames of its largest result, which fails as `limit`.

    None when there is nothing left to remove.
    """
    largest = max(report.outcomes, key=lambda outcome: outcome.length, default=None)
    if largest is None or not largest.length:
        return None
    start, end = largest.offset, largest.offset + largest.length
    outcomes = [
        _refused(outcome) if outcome is largest else _moved(outcome, end, largest.length)
        for outcome in report.outcomes
    ]
    frames = report.frames[:start] + report.frames[end:]
    return replace(report, outcomes=outcomes, frames=frames)


def _refused(outcome: Outcome) -> Outcome:
    detail = f"the result of {outcome.length} bytes exceeds the limit of the center"
    return replace(outcome, failure=FailureClass.LIMIT, detail=detail, offset=0, length=0)


def _moved(outcome: Outcome, end: int, by: int) -> Outcome:
    return replace(outcome, offset=outcome.offset - by) if outcome.offset >= end else outcome
