"""Schedules: what is accepted, and when it comes due (D1, P3, fault 31)."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skep.jobs.definitions.job_dependencies import chain_problems, ring
from skep.jobs.schedule.timetable import Timetable, instant_of, next_fires, schedule_problems
from skep.model.jobs.schedule import Schedule, ScheduleProblem, days_of, problems_in

BERLIN = ZoneInfo("Europe/Berlin")


def at(text: str, zone: ZoneInfo = BERLIN) -> float:
    moment = datetime.fromisoformat(text)
    return (moment if moment.tzinfo else moment.replace(tzinfo=zone)).timestamp()


def due(start: str, count: int = 3, **words: object) -> list[str]:
    schedule = Schedule(**{"zone": "Europe/Berlin", **words})  # type: ignore[arg-type]
    assert not schedule_problems(schedule, "job", at(start))
    return [text.removeprefix("2026-") for text in next_fires(schedule, "job", at(start), count)]


class TestWhatIsAccepted:
    def test_every_flaw_is_said_at_once_with_its_path(self) -> None:
        """D1: validated before it is stored."""
        schedule = Schedule(
            cron="61 * * * *",
            every=5,
            zone="Mars/Olympus",
            exclude=("sat", "2026-02-30", "2026-01-02/2026-01-01"),
            after=("a", "me", "a", " "),
        )
        assert [problem.path for problem in problems_in(schedule, "me")] == [
            "schedule.every",
            "schedule.cron",
            "schedule.zone",
            "schedule.exclude[1]",
            "schedule.exclude[2]",
            "schedule.after[1]",
            "schedule.after[2]",
            "schedule.after[3]",
        ]

    @pytest.mark.parametrize(
        ("cron", "said"),
        [
            ("", "set one of cron, every or after"),
            ("* * * *", "it has 4 fields; write minute, hour, day, month and weekday"),
            ("*/0 * * * *", "its minute is '*/0'; it must be 0 to 59"),
            ("0 24 * * *", "its hour is '24'; it must be 0 to 23"),
            ("0 0 31 2 *", "month 2 has no day 31"),
            ("@reboot", "is not a known macro"),
            ("0 0 * * MOON", "its day of the week is 'MOON'; it must be 0 to 7 or sun to sat"),
        ],
    )
    def test_a_bad_cron_line_is_refused(self, cron: str, said: str) -> None:
        (problem,) = problems_in(Schedule(cron=cron))
        assert said in problem.message

    @pytest.mark.parametrize(
        "cron",
        ["* * * * *", "@daily", " @Hourly ", "0 12 L * *", "30 9 * * MON-FRI", "5 0 0 * * *"],
    )
    def test_a_good_line_is_accepted(self, cron: str) -> None:
        assert problems_in(Schedule(cron=cron)) == []

    @pytest.mark.parametrize("zone", ["", "../etc/passwd", "/etc/localtime", "Europe", "X\0"])
    def test_a_zone_is_an_iana_name(self, zone: str) -> None:
        (problem,) = problems_in(Schedule(cron="@daily", zone=zone))
        assert problem.path == "schedule.zone"

    def test_what_never_comes_due_is_refused(self) -> None:
        mondays = Schedule(cron="0 0 * * 1", exclude=("mon",))
        (problem,) = schedule_problems(mondays, "job", at("2026-01-01"))
        assert "is never due" in problem.message
        week = Schedule(every=60, exclude=("mon", "tue", "wed", "thu", "fri", "sat", "sun"))
        assert [f.path for f in schedule_problems(week, "job", 0.0)] == ["schedule.exclude"]

    @given(st.text(max_size=30), st.text(max_size=30), st.text(max_size=20))
    def test_no_text_breaks_the_check(self, cron: str, zone: str, exclude: str) -> None:
        schedule = Schedule(cron=cron, zone=zone, exclude=(exclude,))
        for problem in schedule_problems(schedule, "job", 1.8e9):
            assert problem.path.startswith("schedule")
            assert problem.message


class TestTheClocksChange:
    def test_a_skipped_time_comes_due_once_at_the_shift(self) -> None:
        assert due("2026-03-28T12:00", cron="30 2 * * *") == [
            "03-29T03:00:00+02:00",
            "03-30T02:30:00+02:00",
            "03-31T02:30:00+02:00",
        ]

    def test_several_skipped_times_are_one(self) -> None:
        assert due("2026-03-28T12:00", cron="*/20 2,3 * * *", count=4) == [
            "03-29T03:00:00+02:00",
            "03-29T03:20:00+02:00",
            "03-29T03:40:00+02:00",
            "03-30T02:00:00+02:00",
        ]

    def test_a_doubled_time_comes_due_the_first_time_only(self) -> None:
        assert due("2026-10-24T12:00", cron="30 2 * * *", count=2) == [
            "10-25T02:30:00+02:00",
            "10-26T02:30:00+01:00",
        ]
        assert due("2026-10-25T02:40:00+02:00", cron="*/30 2 * * *", count=1) == [
            "10-26T02:00:00+01:00"
        ]

    def test_even_hours_count_local_hours(self) -> None:
        assert due("2026-10-25T00:30", cron="0 */2 * * *", count=2) == [
            "10-25T02:00:00+02:00",
            "10-25T04:00:00+01:00",
        ]

    def test_hourly_stays_hourly(self) -> None:
        found = due("2026-10-25T01:30", cron="@hourly", count=3)
        assert found == ["10-25T02:00:00+02:00", "10-25T02:00:00+01:00", "10-25T03:00:00+01:00"]
        assert due("2026-03-29T00:30", cron="0 0-23 * * *", count=2) == [
            "03-29T01:00:00+01:00",
            "03-29T03:00:00+02:00",
        ]

    @pytest.mark.parametrize(
        "zone", ["Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "America/Havana",
                 "Africa/Cairo", "Pacific/Chatham", "Asia/Tehran", "Africa/Casablanca"],
    )  # fmt: skip
    @pytest.mark.parametrize("cron", ["30 2 * * *", "0 0 * * *"])
    def test_once_a_day_for_three_years(self, zone: str, cron: str) -> None:
        """Fault 31: fires per day are as expected through every change of the clocks."""
        place = ZoneInfo(zone)
        first, last = date(2025, 1, 1), date(2028, 1, 1)
        start = instant_of(datetime.combine(first, datetime.min.time()), place) - 1
        end = instant_of(datetime.combine(last, datetime.min.time()), place) - 1
        found = list(Timetable(Schedule(cron=cron, zone=zone), "job").between(start, end))
        days = [datetime.fromtimestamp(instant, place).date() for instant in found]
        assert days == [first + timedelta(days=n) for n in range((last - first).days)]

    @pytest.mark.parametrize("zone", ["Europe/Berlin", "America/New_York", "Australia/Lord_Howe"])
    def test_each_minute_for_the_days_of_change(self, zone: str) -> None:
        for month, day in ((3, 8), (3, 28), (4, 4), (10, 3), (10, 24), (11, 1)):
            start = int(datetime(2026, month, day, 6, tzinfo=UTC).timestamp())
            table = Timetable(Schedule(cron="* * * * *", zone=zone), "job")
            found = list(table.between(start, start + 86400))
            assert found == list(range(start + 60, start + 86400 + 1, 60))

    @given(st.integers(1_700_000_000, 1_900_000_000), st.integers(0, 200_000))
    def test_it_does_not_matter_when_one_asks(self, start: int, later: int) -> None:
        """Two centers that ask at different moments agree about every due time."""
        table = Timetable(Schedule(cron="*/17 1-3 * * *", zone="America/New_York"), "job")
        whole = list(table.between(start, start + 300_000))
        assert [one for one in whole if one > start + later] == list(
            table.between(start + later, start + 300_000)
        )
        assert whole == sorted(set(whole))


class TestCalendarsIntervalsJitter:
    def test_excluded_days(self) -> None:
        exclude = ("sat", "sun", "12-25", "2026-12-28/2026-12-30")
        assert due("2026-12-23T12:00", cron="30 9 * * *", exclude=exclude) == [
            "12-24T09:30:00+01:00",
            "12-31T09:30:00+01:00",
            "2027-01-01T09:30:00+01:00",
        ]

    def test_days_are_those_of_the_zone(self) -> None:
        found = next_fires(
            Schedule(every=3600, zone="Asia/Tokyo", exclude=("sun",)),
            "job",
            at("2026-11-14T14:30:00+00:00"),
            1,
        )
        assert found == ["2026-11-16T00:00:00+09:00"], "Sunday in Tokyo"

    def test_a_day_that_the_zone_skipped(self) -> None:
        """Samoa had no 30 December 2011."""
        found = next_fires(
            Schedule(cron="0 9 30 12 *", zone="Pacific/Apia"),
            "job",
            at("2011-12-01T00:00+00:00"),
            1,
        )
        assert found == ["2011-12-31T00:00:00+14:00"]

    def test_the_29th_of_february(self) -> None:
        assert days_of("02-29").has(date(2028, 2, 29))
        assert due("2026-01-01", cron="0 0 29 2 *", count=1) == ["2028-02-29T00:00:00+01:00"]

    def test_intervals_are_counted_from_the_epoch(self) -> None:
        table = Timetable(Schedule(every=900), "job")
        assert table.shown(1_800_000_001, 2) == [1_800_000_900, 1_800_001_800]
        assert table.following(1_800_000_900) == 1_800_001_800

    def test_jitter_is_the_same_for_the_same_due_time(self) -> None:
        one, again = (Timetable(Schedule(every=60, jitter=30.0), "job") for _ in range(2))
        other = Timetable(Schedule(every=60, jitter=30.0), "other")
        moments = range(1_800_000_000, 1_800_060_000, 60)
        delays = [one.fires_at(moment) - moment for moment in moments]
        assert delays == [again.fires_at(moment) - moment for moment in moments]
        assert delays != [other.fires_at(moment) - moment for moment in moments]
        assert 0 <= min(delays) < 1
        assert 29 < max(delays) < 30
        assert 14 < sum(delays) / len(delays) < 16

    def test_without_a_clock_nothing_comes_due(self) -> None:
        assert Timetable(Schedule(after=("a",)), "job").following(0.0) is None
        assert schedule_problems(Schedule(after=("a",)), "job", 0.0) == []


class TestChains:
    def test_a_ring_is_found_and_shown(self) -> None:
        others = {"b": ("c",), "c": ("d", "a"), "d": ()}
        assert ring("a", ("x", "b"), others) == ["a", "b", "c", "a"]
        assert ring("a", ("d",), others) == []
        assert ring("a", ("a",), {}) == ["a", "a"]

    def test_a_ring_among_others_does_not_hang(self) -> None:
        assert ring("new", ("b",), {"b": ("c",), "c": ("b",)}) == []

    def test_flaws(self) -> None:
        schedule = Schedule(after=("b", "ghost"))
        assert chain_problems("a", schedule, {"b": ("a",)}, known=("b",)) == [
            ScheduleProblem("schedule.after[1]", "there is no job ghost"),
            ScheduleProblem("schedule.after", "a cycle: a after b after a"),
        ]
