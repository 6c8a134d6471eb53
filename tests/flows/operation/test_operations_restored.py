"""Bulk operations and backups: an operation that was open in the backup goes on after a restore."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

import msgspec
import pytest

from skep.cli.main import run as command_line
from skep.store.sql.store import SqlStore
from skep.testing.grounds.centers import RunningCenter, running_center
from skep.testing.grounds.dead_requests import add_dead
from skep.testing.polling import until

PATH = "/api/v1/operations"
COUNT = 600


async def started(center: RunningCenter, act: str) -> int:
    """An operation that has done a part of its work."""
    await center.open_run("r")
    store = center.services.store
    assert isinstance(store, SqlStore)
    await add_dead(store, "r", COUNT, time.time() - 1)
    asked = {"resource": "failures", "act": act, "filter": "run:r", "rate": 50, "dry_run": False}
    answer = (await center.admin.post(PATH, asked)).json()
    number = int(answer["operation"]["id"])
    await until(lambda: store.operations.get(number), lambda one: one.settled)
    return number


async def view_at_end(center: RunningCenter, number: int) -> Any:
    async def look() -> Any:
        return (await center.admin.get(f"{PATH}/{number}")).json()

    return await until(look, lambda view: view["ended_at"], seconds=60)


@pytest.mark.parametrize("act", ["retry", "export"])
async def test_an_open_operation_goes_on_after_a_restore(tmp_path: Path, act: str) -> None:
    """R3, U9: each object is worked off once, whatever the backup had of it; the restored center
    does not wait for the one that was backed up."""
    async with running_center(tmp_path / "live") as center:
        number = await started(center, act)
        words = ["backup", str(tmp_path / "b"), "--data", str(tmp_path / "live")]
        assert await asyncio.to_thread(command_line, words) == 0
        await center.admin.post(f"{PATH}/{number}/cancel")
    words = ["restore", str(tmp_path / "b"), "--data", str(tmp_path / "new")]
    assert await asyncio.to_thread(command_line, words) == 0
    async with running_center(tmp_path / "new") as center:
        view = await view_at_end(center, number)
        ledger = await center.ledger("r")
        assert (view["state"], view["settled"]) == ("done", COUNT), "the cancel came later"
        assert [(one["outcome"], one["count"]) for one in view["results"]] == [("done", COUNT)]
        if act == "export":
            content = (await center.admin.get(f"{PATH}/{number}/file")).content
            ids = {msgspec.json.decode(line)["id"] for line in content.splitlines()}
            assert (len(ids), len(content.splitlines()), ledger.dead) == (COUNT, COUNT, COUNT)
        else:
            assert (ledger.dead, ledger.unaccounted) == (0, 0)


async def test_an_export_and_a_retry_of_the_same_requests(tmp_path: Path) -> None:
    """R3: both end; what the retry took first is not in the file, and the counts add up."""
    async with running_center(tmp_path) as center:
        export = await started(center, "export")
        asked = {"resource": "failures", "act": "retry", "filter": "run:r", "dry_run": False}
        retry = (await center.admin.post(PATH, asked)).json()["operation"]["id"]
        views = [await view_at_end(center, number) for number in (export, retry)]
        assert [(one["state"], one["settled"]) for one in views] == [("done", COUNT)] * 2
        counts = {(one["outcome"], one["reason"]): one["count"] for one in views[0]["results"]}
        written = counts[("done", "")]
        assert counts == {
            ("done", ""): written,
            ("skipped", "no longer matches the filter"): COUNT - written,
        }
        content = (await center.admin.get(f"{PATH}/{export}/file")).content
        assert len(content.splitlines()) == written == views[0]["file"]["lines"]
        assert (await center.ledger("r")).dead == 0
