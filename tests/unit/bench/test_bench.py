"""The benches measure what they say: equal work, whole work, medians, honest verdicts."""

from __future__ import annotations

import json
import sqlite3
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from bench import __main__ as command
from bench import page, start
from bench.children import bulk
from bench.children import drain as ours
from bench.children.fetch import Crowd
from bench.figures import Figure, Result, Wrong, alternate, check
from bench.floors import drain_sqlite, insert
from bench.kill import bench as kill
from bench.options import Options
from skep.downloaders.ports import Fetched
from skep.model.request import Outcome, Work

#: Columns that hold moments, which two runs cannot share.
MOMENTS = {"at", "created_at", "lease_until", "answer_by"}


def content(path: Path, table: str) -> list[tuple[Any, ...]]:
    line = sqlite3.connect(path)
    try:
        names = [row[1] for row in line.execute(f"PRAGMA table_info({table})")]
        columns = ", ".join(f'"{name}"' for name in names if name not in MOMENTS)
        return sorted(line.execute(f"SELECT {columns} FROM {table}").fetchall(), key=repr)
    finally:
        line.close()


def figures(path: Path) -> list[tuple[Any, ...]]:
    """Rates are counted by the moment; their sum is the same."""
    name = "CASE WHEN name LIKE 'rate.%' THEN 'rate' ELSE name END"
    return _asked(path, f"SELECT run, {name}, sum(n) FROM figures GROUP BY 1, 2 ORDER BY 1, 2")


def bounded(path: Path) -> list[tuple[Any, ...]]:
    """Blocks whose agent had to answer by a time."""
    return _asked(path, "SELECT count(*) FROM blocks WHERE answer_by > lease_until")


def _asked(path: Path, query: str) -> list[tuple[Any, ...]]:
    line = sqlite3.connect(path)
    try:
        return line.execute(query).fetchall()
    finally:
        line.close()


async def test_the_floor_of_drain_writes_the_very_rows_that_ours_writes(tmp_path: Path) -> None:
    """Never easier work for one side: afterwards the two databases are equal."""
    mine, by_hand = tmp_path / "ours.db", tmp_path / "floor.db"
    found = await ours.measure(f"sqlite:///{mine}", 2500)
    await ours.only_fill(f"sqlite:///{by_hand}", 2500)
    floor = drain_sqlite.measure(str(by_hand), 2500)
    assert found["done"] == floor["done"] == 2500
    for table in ("requests", "attempts", "blocks", "block_history", "block_bodies", "tallies"):
        assert content(mine, table) == content(by_hand, table), table
    assert figures(mine) == figures(by_hand)
    assert bounded(mine) == bounded(by_hand) == [(25,)]


async def test_the_floor_of_enqueue_inserts_rows_as_wide_as_ours(tmp_path: Path) -> None:
    mine, by_hand = tmp_path / "ours.db", tmp_path / "floor.db"
    accepted = await bulk.measure(f"sqlite:///{mine}", 300)
    inserted = insert.measure(str(by_hand), 300)
    assert accepted["accepted"] == inserted["rows"] == 300
    columns = "fingerprint, uri, host, priority, arguments, state, failures, block, not_before"
    rows = []
    for path, run in ((mine, 2), (by_hand, 1)):
        line = sqlite3.connect(path)
        query = f"SELECT {columns} FROM requests WHERE run = {run} ORDER BY uri"
        rows.append(line.execute(query).fetchall())
        line.close()
    assert rows[0] == rows[1]


def test_subjects_take_turns_and_another_one_begins_each_round() -> None:
    order: list[str] = []

    def subject(name: str, value: float) -> dict[str, float]:
        order.append(name)
        return {"rate": value * len(order)}

    found = alternate({"a": lambda: subject("a", 1.0), "b": lambda: subject("b", 2.0)}, 3)
    assert order == ["a", "b", "b", "a", "a", "b"]
    assert found["a"]["rate"].values == (1.0, 4.0, 5.0)
    assert found["a"]["rate"].told() == {"median": 4.0, "min": 1.0, "max": 5.0}


def test_work_that_was_not_done_whole_gives_no_figure() -> None:
    with pytest.raises(Wrong, match="rows: expected 10, found 9"):
        check(10, 9, "rows")


def a_result(**changes: Any) -> Result:
    values: dict[str, Any] = {
        "name": "x", "unit": "requests/s", "ours": 57080.4, "peer": None, "floor": 0.0123456,
        "ratio": 2.0, "bar": 1.0, "ok": True, "meaning": "ours / theirs",
    }  # fmt: skip
    return Result(**{**values, **changes})


def test_a_result_names_the_promised_keys_first_and_is_json() -> None:
    told = a_result(more={"spread": Figure((1.0, 2.0, 9.0)).told()}).told()
    assert list(told)[:7] == ["name", "ours", "peer", "floor", "ratio", "bar", "ok"]
    assert told["floor"] == 0.01235
    assert json.loads(json.dumps(told)) == told


def test_the_page_shows_every_bench_with_spread_and_verdict() -> None:
    results = [
        a_result(more={"seconds": Figure((0.1, 0.2, 0.3)).told()}).told(),
        a_result(name="y", ok=False, more={"sqlite": {"ours": Figure((1.0,)).told()}}).told(),
    ]
    text = page.page(results, "2 cores")
    assert "Machine: 2 cores." in text
    assert "| x | requests/s | 57,080 | - | 0.01235 | 2 | 1 | yes |" in text
    assert "| seconds | 0.2 (0.1 to 0.3) |" in text
    assert "| sqlite ours | 1 (1 to 1) |" in text
    assert "| y | requests/s | 57,080 | - | 0.01235 | 2 | 1 | **no** |" in text


def test_the_command_lists_every_bench_and_refuses_too_few_rounds(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert command.main(["--list"]) == 0
    listed = capsys.readouterr().out
    assert [line.split()[0] for line in listed.splitlines()] == list(command.BENCHES)
    with pytest.raises(SystemExit):
        command.parse(["drain", "--rounds", "2"])


def test_the_last_line_is_the_result_and_the_exit_code_its_verdict(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bench.start.run", lambda _options: a_result(name="start", ok=False))
    assert command.main(["start", "--json"]) == 1
    last = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert last["name"] == "start"
    assert last["ok"] is False
    assert "load" in last


class Instant:
    """A downloader whose every second download fails."""

    active = 0

    def start(self, work: Work, done: Any) -> None:
        failure = "network" if work.id % 2 else ""
        done(Fetched(Outcome(work.id, failure=failure, status=200, received=7), b"frame"))

    async def close(self) -> None:
        """Nothing to let go."""


async def test_a_failed_download_is_not_counted_as_a_page() -> None:
    crowd = Crowd(Instant(), [Work(n, "http://x/") for n in range(10)], 3)
    await crowd.run()
    assert (crowd.good, len(crowd.faults), crowd.received) == (5, 5, 35)


@pytest.mark.slow
def test_a_small_ordeal_loses_nothing() -> None:
    """Kill -9 of center and agents in the middle of 200 requests."""
    found = kill.on_sqlite(Options(kills=3, requests=200, seed=7))
    assert found["lost"] == 0
    assert found["accepted"] == 200
    assert sum(found["kills"].values()) == 3
    assert found["repeated"] <= found["leased_at_kills"]


@pytest.mark.parametrize(("seconds", "holds"), [(1.3, True), (1.5, False)])
def test_the_start_holds_only_beside_scrapy(
    monkeypatch: pytest.MonkeyPatch, seconds: float, holds: bool
) -> None:
    """U15: `run_ratio` is part of the verdict, and comes from the medians of the same rounds."""
    monkeypatch.setattr(start, "served_page", lambda: nullcontext("http://127.0.0.1/"))
    monkeypatch.setattr(start, "up", lambda **_: {"ready": 0.5, "memory": 80.0})
    monkeypatch.setattr(start, "show_help", lambda: {"seconds": 0.05})
    monkeypatch.setattr(start, "skep_run", lambda *_: {"seconds": seconds, "cpu": 1.0})
    monkeypatch.setattr(start, "scrapy_runspider", lambda _: {"seconds": 1.0, "cpu": 0.9})
    told = start.run(Options(rounds=3)).told()
    assert told["run_ratio"] == seconds
    assert told["run_ratio_bar"] == 1.4
    assert told["ok"] is holds
