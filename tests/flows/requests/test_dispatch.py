"""Dispatch by hand and its log, through a real center: API and command line."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from skep.cli.main import run as command_line
from skep.testing.grounds.centers import RunningCenter, running_center

PATH = "/api/v1/dispatches"


async def filled(center: RunningCenter, count: int = 250) -> None:
    """A run that waits for a lane with room for 200."""
    await center.open_run("r")
    await center.put("r", [f"http://127.0.0.1/{n}" for n in range(count)])
    await center.dispatched()


async def test_the_log_says_what_went_into_lanes_and_who_waits(tmp_path: Path) -> None:
    """D3, D4: success and alert rows with job, lane, size and the center's machine."""
    async with running_center(tmp_path, lanes_low_limit=200) as center:
        await filled(center)
        async with asyncio.timeout(20):
            while True:
                rows = (await center.admin.get(f"{PATH}?run=r")).json()["items"]
                if {row["kind"] for row in rows} == {"success", "alert"}:
                    break
        good = [row for row in rows if row["kind"] == "success"]
        assert sum(row["size"] for row in good) == 200
        assert {(row["job"], row["lane"], bool(row["host"])) for row in rows} == {
            ("r", "low", True)
        }
        (alert,) = {row["reason"] for row in rows if row["kind"] == "alert"}
        assert alert == "lane low is full (200)"
        only = (await center.admin.get(f"{PATH}?kind=alert&limit=1")).json()
        assert [row["kind"] for row in only["items"]] == ["alert"]
        assert only["next"] == only["items"][0]["id"]


async def test_a_round_by_hand_is_told_by_the_command_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """D4: `skep dispatch`, dry and real, for people and for programs."""
    async with running_center(tmp_path, lanes_low_limit=200) as center:
        await filled(center)
        place = ["--data", str(center.folder)]
        for more in (["--dry-run"], []):
            assert await asyncio.to_thread(command_line, ["dispatch", *more, "--json", *place]) == 0
            report = json.loads(capsys.readouterr().out)
            assert report["dry_run"] == bool(more)
            assert [(row["kind"], row["run"]) for row in report["rows"]] == [("alert", "r")]
        assert await asyncio.to_thread(command_line, ["dispatch", "--log", *place]) == 0
        shown = capsys.readouterr().out
        assert "lane low is full (200)" in shown
        assert "success" in shown
        assert await asyncio.to_thread(command_line, ["dispatch", *place]) == 0
        assert "0 requests were dispatched" in capsys.readouterr().out
