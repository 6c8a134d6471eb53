"""How values are shown: numbers, times, names, states, ledgers, charts, paths."""

from __future__ import annotations

import pytest

from skep.model.ledger import Ledger
from skep.portal.preferences import Preferences, accepted_language
from skep.portal.safe_paths import HOME, safe_path
from skep.portal.show.charts import Series, chart, trend
from skep.portal.show.commands import command, curl
from skep.portal.show.freeing_acts import act_of
from skep.portal.show.ledgers import WIDTH, ledger_bar
from skep.portal.show.names import held, middle_cut
from skep.portal.show.numbers import duration, number, share, size
from skep.portal.show.ranges import TimeRange
from skep.portal.show.states import LOOKS, state_mark
from skep.portal.show.tables import selected_filter
from skep.portal.show.times import moment


@pytest.mark.parametrize(
    ("value", "text"),
    [(0, "0"), (2418306, "2,418,306"), (1.24, "1.24"), (812.4, "812"), (None, "\N{EN DASH}")],
)
def test_numbers(value: float | None, text: str) -> None:
    assert number(value) == text


@pytest.mark.parametrize(("value", "text"), [(0, "0 B"), (999, "999 B"), (1_230_000, "1.23 MB")])
def test_sizes(value: int, text: str) -> None:
    assert size(value) == text


@pytest.mark.parametrize(
    ("part", "whole", "text"),
    [(0, 10, "0"), (10, 10, "100"), (1, 10**6, "0.1"), (999_999, 10**6, "99.9")],
)
def test_a_share_is_never_rounded_to_all_or_nothing(part: int, whole: int, text: str) -> None:
    assert share(part, whole)[:-2] == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.2, "200 ms"), (1.24, "1.24 s"), (41, "41 s"), (300, "5 min"), (3 * 86400, "3 d")],
)
def test_durations(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def test_a_time_has_a_relative_and_an_exact_text() -> None:
    found = moment(1_000_000_000, 1_000_000_300)
    assert found is not None
    assert (found.distance, found.ago, found.exact) == ("5 min", True, "2001-09-09 01:46:40 UTC")
    assert moment(0, 1) is None
    assert moment(1e300, 1) is None


def test_a_long_name_is_cut_in_the_middle() -> None:
    text = "a" * 5000 + "end"
    cut = middle_cut(text, 40)
    assert len(cut) == 40
    assert cut.endswith("end")
    assert "…" in cut
    assert len(held(text)) == 2000
    assert middle_cut("short") == "short"


def test_every_state_has_one_look() -> None:
    words = [word for group in LOOKS.values() for word in group]
    assert len(words) == len(set(words))
    assert state_mark("running").look == "run"
    assert state_mark("<script>").look == "wait"


@pytest.mark.parametrize(
    "ledger",
    [
        Ledger(),
        Ledger(accepted=10, done=10),
        Ledger(
            accepted=2_418_306,
            done=2_361_022,
            waiting=33_940,
            queued=2_910,
            leased=7_204,
            delayed=8_118,
            dead=5_112,
        ),
        Ledger(accepted=10**9, done=10**9 - 1, dead=1),
    ],
)
def test_the_bar_of_a_ledger_adds_up(ledger: Ledger) -> None:
    bar = ledger_bar(ledger)
    assert sum(part.count for part in bar.parts) == ledger.total
    drawn = bar.drawn
    assert all(part.count for part in drawn)
    if drawn:
        assert drawn[-1].x + drawn[-1].width == pytest.approx(WIDTH, abs=0.1)
        assert min(part.width for part in drawn) >= 4
    assert bar.unaccounted == 0


def test_a_difference_is_not_hidden() -> None:
    assert ledger_bar(Ledger(accepted=3, done=1)).unaccounted == 2


def test_a_gap_of_a_chart_stays_a_gap() -> None:
    shape = chart(0, 60, [Series("done", [1.0, None, 2.0, 3.0])])
    (line,) = shape.lines
    assert line.path.count("M") == 2
    assert len(shape.bands) == 4
    assert shape.bands[1].title.endswith("done \N{EN DASH}")
    assert shape.top == "3"
    assert chart(0, 60, [Series("done", [])]).is_empty


def test_the_trend_compares_two_halves() -> None:
    assert trend([1, 1, 2, 2]) == pytest.approx(1.0)
    assert trend([0, 0, 2, 2]) is None
    assert trend([]) is None


@pytest.mark.parametrize(
    "text",
    [
        "https://evil.test/",
        "//evil.test",
        "/\\evil.test",
        "javascript:alert(1)",
        "/ok\r\nSet-Cookie: a=b",
        "\\\\evil.test",
        "",
        "/" + "a" * 5000,
        "/\tevil",
    ],
)
def test_only_paths_of_the_portal_are_followed(text: str) -> None:
    """P4: no open redirect after login."""
    assert safe_path(text) == HOME


def test_a_path_of_the_portal_is_kept() -> None:
    assert safe_path("/runs?filter=state%3Afailed") == "/runs?filter=state%3Afailed"


@pytest.mark.parametrize(
    ("header", "language"),
    [
        ("", "en"),
        ("zh-CN,zh;q=0.9,en;q=0.8", "zh"),
        ("fr,de", "en"),
        ("en;q=0.1,zh;q=0.9", "zh"),
        ("zh;q=x,en", "en"),
    ],
)
def test_the_language_follows_the_browser(header: str, language: str) -> None:
    assert accepted_language(header) == language


def test_an_unknown_preference_is_ignored() -> None:
    found = Preferences.of({"skep_language": "<script>", "skep_theme": "pink"}, "zh")
    assert found == Preferences("zh", "auto")


def test_a_copied_command_cannot_be_broken_out_of() -> None:
    hostile = "a'; rm -rf / #"
    assert command("runs", "show", hostile) == """skep runs show 'a'"'"'; rm -rf / #'"""
    line = curl("http://c.test", "/api/v1/runs/x", "POST", '{"a": "\'"}')
    assert line.startswith("curl -sS -X POST")
    assert line.endswith('"Authorization: Bearer $SKEP_TOKEN"')


def test_a_selection_is_a_filter() -> None:
    assert selected_filter("name", ["a", "b c"]) == 'name:a,"b c"'


def test_a_range_comes_from_the_url() -> None:
    assert TimeRange.of({}, 5000).since == 1400
    assert TimeRange.of({"range": "bad"}, 5000).span == "1h"
    dragged = TimeRange.of({"from": "10", "to": "20"}, 5000)
    assert (dragged.since, dragged.until, dragged.query) == (10, 20, "from=10&to=20")
    assert TimeRange.of({"from": "nan", "to": "20"}, 5000).span == "1h"


@pytest.mark.parametrize(
    ("line", "path"),
    [
        ("skep runs continue r 1", None),
        ("skep runs continue 'r 1'", "/runs/r%201/continue"),
        ("skep runs revive r1", "/runs/r1/revive"),
        ("skep doctor", None),
        ("rm -rf / now", None),
        ("skep runs continue 'open", None),
        ("skep runs continue ../../logout", "/runs/..%2F..%2Flogout/continue"),
    ],
)
def test_a_command_that_ends_a_wait_is_a_button(line: str, path: str | None) -> None:
    found = act_of(line)
    assert (None if found is None else found.path) == path
