"""Errors as values: what a caller can rely on when one is caught."""

from __future__ import annotations

import pytest

from skep import errors


def test_an_error_carries_its_sentence() -> None:
    error = errors.UnknownRun("there is no run called quotes")
    assert error.detail == "there is no run called quotes"
    assert str(error) == error.detail


@pytest.mark.parametrize(
    ("raised", "caught"),
    [
        (errors.NotAUrl, errors.InvalidInput),
        (errors.UnknownBlock, errors.NotFound),
        (errors.StaleToken, errors.Conflict),
        (errors.DiskFull, errors.Unavailable),
        (errors.CenterUnreachable, errors.SkepError),
    ],
)
def test_a_kind_can_be_caught_by_its_family(
    raised: type[errors.SkepError], caught: type[errors.SkepError]
) -> None:
    with pytest.raises(caught, match="told"):
        raise raised("told")


@pytest.mark.parametrize("error", [errors.StoreDown, errors.BusDown, errors.DiskFull])
def test_what_is_only_down_may_be_tried_again(error: type[errors.SkepError]) -> None:
    """A7: agents keep what they have and try again; nothing was changed."""
    assert error.retryable
    assert error.status >= 500


def test_a_stale_token_is_not_worth_a_retry() -> None:
    """Another agent holds the block by now; asking again changes nothing."""
    assert not errors.StaleToken.retryable
