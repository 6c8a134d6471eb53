"""The bench of politeness counts as it says: at the servers, in any second, against the rule."""

from __future__ import annotations

from typing import Any

import pytest

from bench import polite
from bench.options import Options


def test_the_fullest_second_of_any_host_is_the_one_that_counts() -> None:
    starts = {"a": [0.0, 1.0, 2.0], "b": [0.9, 1.5, 1.8, 9.0]}
    assert polite.fullest(starts, 0.0, 10.0) == 3
    assert polite.fullest(starts, 1.6, 10.0) == 1


def test_utilisation_is_what_was_asked_of_what_the_rules_allow() -> None:
    starts = {str(host): [0.1 * n for n in range(100)] for host in range(polite.HOSTS)}
    assert polite.used(starts, 0.0, 5.0) == pytest.approx(10 / polite.RATE)


@pytest.mark.parametrize(("most", "ok"), [(2, True), (3, False)])
def test_one_request_too_many_is_a_failure(
    monkeypatch: pytest.MonkeyPatch, most: int, ok: bool
) -> None:
    found: dict[str, Any] = {"most_in_a_second": {"ever": most}}
    monkeypatch.setattr(polite, "measure", lambda: found)
    assert polite.run(Options()).ok is ok
