"""The last words of `skep run` and its exit code, for every way a session can end."""

from __future__ import annotations

import json

import pytest

from skep.cli.commands.crawl.run_summary import exit_code, tell
from skep.cli.terminal.wait_outcome import NO_DEAD, AllowDead
from skep.model.ledger import Ledger
from skep.spiders.driving.stats import (
    CANCELLED,
    FINISHED,
    PAUSED,
    START_FAILED,
    UNREACHABLE,
    Ending,
    Stats,
)
from skep.spiders.session.item_sinks import SinkProgress
from skep.spiders.session.plan import SessionResult

AGAIN = "skep run s.py --resume r"
ALL_DONE = Ledger(accepted=4, done=4)
ONE_DEAD = Ledger(accepted=4, done=3, dead=1)


def result(
    reason: str = FINISHED,
    stats: Stats | None = None,
    ledger: Ledger | None = ALL_DONE,
    problem: str = "",
) -> SessionResult:
    ending = Ending(reason, "a sentence", stats or Stats(pages=4, items=4))
    return SessionResult("r", "s", ending, [SinkProgress("x.jsonl", 4, 0, problem)], ledger)


GONE = Stats(pages=3, failed=1)
ENDS: dict[str, tuple[SessionResult, AllowDead, int, str]] = {
    "all done": (result(), NO_DEAD, 0, ""),
    "paused": (result(PAUSED), NO_DEAD, 130, f"paused; continue with: {AGAIN}"),
    "failed": (result(START_FAILED), NO_DEAD, 1, f"continue with: {AGAIN}"),
    "unreachable": (result(UNREACHABLE), NO_DEAD, 6, "a sentence (center unreachable)"),
    "cancelled": (result(CANCELLED), NO_DEAD, 1, "error: a sentence (cancelled)"),
    "one dead": (result(ledger=ONE_DEAD), NO_DEAD, 7, "skep failures ls --run r"),
    "one dead allowed": (result(ledger=ONE_DEAD), AllowDead(1), 0, ""),
    "no ledger, one failed": (result(stats=GONE, ledger=None), NO_DEAD, 7, "some requests failed"),
    "a stuck sink": (
        result(problem="is full"),
        NO_DEAD,
        1,
        "not all items are in x.jsonl: is full",
    ),
    "all raised": (result(stats=Stats(pages=4, callback_errors=4)), NO_DEAD, 1, "on every page"),
    "some raised": (result(stats=Stats(pages=4, callback_errors=3)), NO_DEAD, 0, ""),
}


@pytest.mark.parametrize("end", ENDS)
def test_the_exit_code_of_every_end(end: str, capsys: pytest.CaptureFixture[str]) -> None:
    ended, allow, code, said = ENDS[end]
    assert exit_code(ended, AGAIN, allow) == code
    told = capsys.readouterr()
    assert (said in told.err, bool(told.err), told.out) == (True, bool(said), "")
    assert ("continue with" in told.err) == (end in {"paused", "failed", "unreachable"})


def test_programs_get_one_document_and_people_some_lines(
    capsys: pytest.CaptureFixture[str],
) -> None:
    stats = Stats(pages=3, items=3, failed=1, failures={"network": 1}, seconds=1.5, bytes=2_000)
    tell(result(stats=stats, ledger=ONE_DEAD), as_json=True)
    told = capsys.readouterr()
    document = json.loads(told.out)
    assert (document["pages"], document["errors"], document["ledger"]["dead"]) == (
        3,
        {"network": 1},
        1,
    )
    assert document["outputs"] == [{"place": "x.jsonl", "items": 4, "refused": 0, "problem": ""}]
    assert told.err.splitlines() == [
        "finished: 3 pages, 3 items, 2.0 KB in 1.5 s (2 pages/s)",
        "errors   1 network",
        f"ledger   {ONE_DEAD.line()}",
        "items    4 into x.jsonl",
    ]
