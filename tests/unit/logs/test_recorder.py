"""Lines that a center makes itself: queued, bounded, stored once, never about themselves."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from threading import Thread

import pytest

from skep.errors import StoreDown
from skep.logs.center import recorder as recorders
from skep.logs.center.intake import IntakeRate, LogIntake
from skep.logs.center.query import LogQuery
from skep.logs.center.recorder import NEWEST, LogRecorder
from skep.logs.center.search import LogSearch, SearchBudget
from skep.logs.handler import LineHandler, every_logger, not_of_agent, of_agent, recorded
from skep.logs.line_format import make_entry
from skep.model.logs import LogEntry, LogLine, LogSource, LogSourceKind
from skep.runtime.clock import SystemClock
from skep.store.ports.logs import LogPieces
from skep.testing.doubles.log_pieces import SwitchedLogPieces

CENTER = LogSource(LogSourceKind.CENTER, "one")
RUN = LogSource(LogSourceKind.GENERATOR, "quotes", "quotes-1")
CLOCK = SystemClock()


@pytest.fixture
def place() -> Iterator[SwitchedLogPieces]:
    made = SwitchedLogPieces(":memory:")
    yield made
    made.close()


def recorder_of(place: LogPieces) -> LogRecorder:
    return LogRecorder(LogIntake(place, CLOCK, IntakeRate()), place)


def entry(text: str) -> LogEntry:
    return make_entry(CLOCK.now(), 20, text)


async def stored(place: LogPieces) -> list[LogLine]:
    found = await LogSearch(place, CLOCK).search(LogQuery(), "", 10_000, SearchBudget())
    return found.lines[::-1]


async def texts(place: LogPieces) -> list[str]:
    return [line.text for line in await stored(place)]


async def test_lines_are_stored_in_order(place: SwitchedLogPieces) -> None:
    recorder = recorder_of(place)
    for text in "abc":
        recorder.put(CENTER, NEWEST, entry(text))
    assert await recorder.step() == 3
    assert recorder.waiting == 0
    assert await texts(place) == ["a", "b", "c"]


async def test_lines_wait_while_the_store_is_away(place: SwitchedLogPieces) -> None:
    """R4: a frozen store costs no line as long as there is room."""
    recorder = recorder_of(place)
    place.away = True
    recorder.put(CENTER, NEWEST, entry("a"))
    with pytest.raises(StoreDown):
        await recorder.step()
    recorder.put(CENTER, NEWEST, entry("b"))
    place.away = False
    await recorder.step()
    assert await texts(place) == ["a", "b"]


async def test_a_lost_answer_stores_nothing_twice(place: SwitchedLogPieces) -> None:
    recorder = recorder_of(place)
    place.answers = False
    recorder.put(CENTER, NEWEST, entry("a"))
    with pytest.raises(StoreDown):
        await recorder.step()
    place.answers = True
    recorder.put(CENTER, NEWEST, entry("b"))
    await recorder.step()
    assert await texts(place) == ["a", "b"]


async def test_a_full_queue_drops_new_lines_and_names_them(
    place: SwitchedLogPieces, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R4: bounded; other sources are not affected."""
    monkeypatch.setattr(recorders, "LINES", 2)
    recorder = recorder_of(place)
    for text in "abcde":
        recorder.put(CENTER, NEWEST, entry(text))
    recorder.put(RUN, 1, entry("other"))
    assert recorder.dropped == 3
    await recorder.step()
    recorder.put(CENTER, NEWEST, entry("f"))
    await recorder.step()
    found = await stored(place)
    assert [line.text for line in found if line.kind is LogSourceKind.CENTER] == [
        "a",
        "b",
        "3 lines dropped",
        "f",
    ]
    assert [line.text for line in found if line.run] == ["other"]


async def test_a_restarted_center_continues_and_an_older_one_is_fenced(
    place: SwitchedLogPieces,
) -> None:
    first, second = recorder_of(place), recorder_of(place)
    first.put(CENTER, NEWEST, entry("a"))
    await first.step()
    second.put(CENTER, NEWEST, entry("b"))
    await second.step()
    first.put(CENTER, NEWEST, entry("lost"))
    await first.step()
    assert first.dropped == 1
    assert [(line.text, line.token) for line in await stored(place)] == [("a", 1), ("b", 2)]


async def test_a_restart_under_the_same_lease_continues(
    place: SwitchedLogPieces,
) -> None:
    """R4: kill -9 of a center that gets its runs back."""
    for text in "ab":
        recorder = recorder_of(place)
        recorder.put(RUN, 7, entry(text))
        await recorder.step()
    assert [(line.text, line.token, line.offset) for line in await stored(place)] == [
        ("a", 7, 0),
        ("b", 7, 1),
    ]


async def test_put_may_be_called_from_any_thread(place: SwitchedLogPieces) -> None:
    recorder = recorder_of(place)

    def put(name: str) -> None:
        for number in range(200):
            recorder.put(CENTER, NEWEST, entry(f"{name} {number}"))

    threads = [Thread(target=put, args=(str(number),)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert await recorder.step() == 800
    assert len(set(await texts(place))) == 800


async def test_closing_stores_what_waits(place: SwitchedLogPieces) -> None:
    recorder = recorder_of(place)
    recorder.put(CENTER, NEWEST, entry("last"))
    await recorder.close(5.0)
    assert await texts(place) == ["last"]


def test_records_become_lines_with_their_exception_and_without_credentials() -> None:
    lines: list[LogEntry] = []
    with recorded(lines.append, every_logger):
        try:
            int("token=abcdef123456")
        except ValueError:
            logging.getLogger("skep.jobs").exception("login %s failed", "https://u:pw@host/")
    (line,) = lines
    assert line.level == logging.ERROR
    assert "pw" not in line.text
    assert line.fields["logger"] == "skep.jobs"
    assert "ValueError" in line.fields["exception"]
    assert "abcdef123456" not in line.fields["exception"]


def test_lines_about_storing_lines_are_left_out() -> None:
    """R4: a failure of the log never feeds itself."""
    lines: list[LogEntry] = []
    with recorded(lines.append, every_logger):
        logging.getLogger("skep.logs.center.merging").warning("damaged")
        logging.getLogger("skep.logsome").warning("other")
    assert [line.text for line in lines] == ["other"]


def test_a_handler_never_raises() -> None:
    def refuse(_: LogEntry) -> None:
        raise RuntimeError("full")

    handler = LineHandler(refuse, every_logger)
    record = logging.LogRecord("skep.x", logging.INFO, "f", 1, "%d", ("no number",), None)
    handler.handle(record)
    assert handler.failed == 1


def test_a_process_with_an_agent_shares_its_loggers_out() -> None:
    for name in ("skep.agent.app", "skep.downloaders.http"):
        assert of_agent(name)
        assert not not_of_agent(name)
    assert not_of_agent("skep.center.app")
    assert not_of_agent("skep.agents")
