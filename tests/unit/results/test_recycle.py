"""Again, and when, or never. Pure."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skep.errors import InvalidInput
from skep.model.block import BlockReport
from skep.model.failures.failure_class import HOPELESS, FailureClass
from skep.model.request import URI_LIMIT, Outcome
from skep.results.ingest import check_report, plain
from skep.results.recycle import RETRY_AFTER_CAP, again_at, backoff_of, worth_retrying
from skep.runtime.backoff import Backoff
from skep.store.ports.blocks import RetryFacts

BACKOFF = Backoff(first=2.0, cap=600.0)
NOW = 1_000_000.0


def when(outcome: Outcome, failures: int = 0, retries: int = 5) -> float | None:
    return again_at(outcome, failures, retries, NOW, BACKOFF, Random(3))


@pytest.mark.parametrize("failure", [f for f in FailureClass if f not in {"status", *HOPELESS}])
def test_what_may_pass_is_tried_again(failure: FailureClass) -> None:
    """D5."""
    assert worth_retrying(Outcome(1, failure))


@pytest.mark.parametrize(
    ("status", "again"),
    [
        *((status, False) for status in (400, 403, 404, 410)),
        *((status, True) for status in (408, 425, 429, 500, 502, 503, 599)),
    ],
)
def test_a_status_decides(status: int, again: bool) -> None:
    """D5: the server's fault, or one that passes."""
    assert worth_retrying(Outcome(1, "status", status)) is again


def test_what_robots_txt_forbids_stays_forbidden() -> None:
    """D5: asking again would be asking against the host's word."""
    assert not worth_retrying(Outcome(1, FailureClass.ROBOTS))


def test_a_body_over_the_limit_stays_over_it() -> None:
    """D5: the same request would only meet it again."""
    assert not worth_retrying(Outcome(1, FailureClass.LIMIT, 200))
    assert when(Outcome(1, FailureClass.LIMIT, 200)) is None


@given(failures=st.integers(0, 2000), retries=st.integers(0, 1000))
def test_the_limit_of_retries_holds(failures: int, retries: int) -> None:
    """D5: `retries` more tries, and a moment that is never before now."""
    moment = when(Outcome(1, "network"), failures, retries)
    if failures >= retries:
        assert moment is None
    else:
        assert moment is not None
        assert NOW < moment <= NOW + BACKOFF.cap


@given(st.integers(0, 60))
def test_the_back_off_doubles_with_jitter(failures: int) -> None:
    """Fault 35: between half and the whole of a step, the steps doubling up to the cap."""
    moment = when(Outcome(1, "network"), failures, 100)
    assert moment is not None
    step = min(600.0, 2.0 * 2**failures)
    assert step / 2 <= moment - NOW <= step


@given(st.floats(allow_nan=True))
def test_retry_after_wins_up_to_a_limit(asked: float) -> None:
    """D5: whatever a server sends, the moment is a real one and not before our own."""
    plain_moment = when(Outcome(1, "status", 429))
    moment = when(Outcome(1, "status", 429, retry_after=asked))
    assert moment is not None
    assert plain_moment is not None
    assert plain_moment <= moment <= NOW + RETRY_AFTER_CAP
    if 600.0 < asked < RETRY_AFTER_CAP:
        assert moment == NOW + asked


outcomes = st.builds(
    Outcome,
    id=st.integers(),
    failure=st.sampled_from(["", "network", "nonsense"]),
    status=st.integers(-10, 70_000),
    detail=st.text(max_size=50),
    elapsed_us=st.integers(),
    offset=st.integers(-5, 20),
    length=st.integers(-5, 20),
    final_uri=st.text(max_size=20),
)


@given(st.lists(outcomes, max_size=3), st.binary(max_size=15))
def test_a_report_is_kept_in_bounds_or_refused(found: list[Outcome], frames: bytes) -> None:
    """Fault 65: no outcome points outside its frames, no number overflows a column."""
    report = BlockReport(1, 1, found, frames=frames)
    try:
        check_report(report)
    except InvalidInput:
        return
    for outcome in found:
        assert 0 <= outcome.offset <= outcome.offset + outcome.length <= len(frames)
        assert 0 <= outcome.elapsed_us < 2**63
        assert "\x00" not in outcome.detail + outcome.final_uri


def test_texts_are_cut_where_the_store_ends() -> None:
    outcome = Outcome(1, detail="x" * 9999, final_uri="y" * 9999, address="z" * 99)
    check_report(BlockReport(1, 1, [outcome]))
    assert (len(outcome.detail), len(outcome.final_uri)) == (1000, URI_LIMIT)
    assert len(outcome.address) == 64


def test_control_characters_become_spaces() -> None:
    """Fault 70."""
    assert plain("ok b\u00fccher \u4f8b") == "ok b\u00fccher \u4f8b"
    assert plain("a\r\nb\x00c\x1b[1md\u2028e\x85f") == "a  b c [1md e f"


@pytest.mark.parametrize(
    ("first", "cap", "expected"),
    [
        (0.0, 0.0, BACKOFF),
        (0.5, 0.0, Backoff(0.5, 600.0)),
        (0.0, 5.0, Backoff(2.0, 5.0)),
        (0.5, 5.0, Backoff(0.5, 5.0)),
        (3600.0, 0.0, Backoff(3600.0, 3600.0)),
    ],
)
def test_a_run_may_have_a_back_off_of_its_own(first: float, cap: float, expected: Backoff) -> None:
    """D5: `backoff_first` and `backoff_cap`; what a run does not say the center says."""
    assert backoff_of(RetryFacts(0, 3, first, cap), BACKOFF) == expected
