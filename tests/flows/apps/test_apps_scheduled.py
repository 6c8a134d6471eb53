"""Application jobs that a schedule fires: a real center, a real agent, a package from a folder
(A8, P3)."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from skep.testing.grounds.centers import RunningCenter, running_center
from skep.testing.grounds.jobs import local_agent, until_found

pytestmark = pytest.mark.needs("bwrap")

QUICK: dict[str, Any] = {"jobs_keep_every": 0.05, "jobs_schedule_every": 0.05}
#: Says hello and ends, or stays, as its argument says.
TOOL = """#!/bin/sh
echo "run $SKEP_RUN"
[ "$1" = stay ] && exec sleep 600
exit 0
"""


@pytest.fixture
async def center(tmp_path: Path) -> AsyncIterator[RunningCenter]:
    tool = tmp_path / "jobs" / "tool"
    tool.mkdir(parents=True)
    (tool / "tool.sh").write_text(TOOL)
    (tool / "tool.sh").chmod(0o755)
    flags = {**QUICK, "jobs_folder": str(tmp_path / "jobs")}
    async with running_center(tmp_path / "data", **flags) as running, local_agent(running):
        yield running


async def put(center: RunningCenter, name: str, word: str, **schedule: Any) -> None:
    app = {"package": "tool", "command": ["./tool.sh", word], "restart": "never"}
    document = {"name": name, "app": app, "schedule": {"every": 1, **schedule}}
    answer = await center.admin.put(f"/api/v1/jobs/{name}", document)
    assert answer.status == 200, answer.content


async def fires(center: RunningCenter, job: str, state: str) -> list[Any]:
    """Oldest first."""
    items = (await center.admin.get(f"/api/v1/jobs/{job}/fires")).json()["items"]
    return [one for one in reversed(items) if one["state"] == state]


async def finished(center: RunningCenter, job: str, count: int) -> list[str]:
    """Runs that fires have started and that have ended well, when there are as many."""
    runs = [one["run"] for one in await fires(center, job, "fired") if one["run"]]
    found = [await center.services.store.job_runs.get(run) for run in runs]
    ended = [one.run for one in found if one and not one.open and one.outcome]
    return ended if len(ended) >= count else []


async def test_an_application_runs_at_each_due_time(center: RunningCenter) -> None:
    """P3, A8: the run ends, the next fire comes, and each has a run and a log of its own."""
    await put(center, "hello", "go")
    runs = await until_found(lambda: finished(center, "hello", 2))
    assert len(set(runs)) == len(runs)
    for run in runs[:2]:
        kept = await center.services.store.job_runs.get(run)
        assert kept is not None
        assert (kept.job, kept.outcome) == ("hello", "finished: instances: 1 done")
        log = (await center.admin.get(f"/api/v1/runs/{run}/instances/0/log")).json()
        assert log["text"] == f"run {run}\n"
    assert (await center.services.store.ledgers.read()).unaccounted == 0


async def test_a_due_time_is_skipped_while_the_application_goes_on(center: RunningCenter) -> None:
    """P3: overlap `skip` holds for applications; when the run was stopped, the next one fires."""
    await put(center, "long", "stay")
    (skipped, *_) = await until_found(lambda: fires(center, "long", "skipped"))
    (first,) = await fires(center, "long", "fired")
    assert skipped["reason"] == f"run {first['run']} was still active"
    stopped = await center.admin.post("/api/v1/jobs/long/stop")
    assert stopped.status == 200, stopped.content

    async def next_one() -> Any:
        found = await fires(center, "long", "fired")
        return found[1] if len(found) > 1 and found[1]["run"] else None

    second = await until_found(next_one)
    assert second["due_at"] > skipped["due_at"]
    assert second["run"] != first["run"]
    kept = await center.services.store.job_runs.get(first["run"])
    assert kept is not None
    assert not kept.open


async def test_the_next_due_time_replaces_an_application(center: RunningCenter) -> None:
    """P3: overlap `replace` ends the run of the last due time, and its instance with it."""
    await put(center, "newest", "stay", overlap="replace")

    async def replaced() -> Any:
        found = [one["run"] for one in await fires(center, "newest", "fired") if one["run"]]
        kept = await center.services.store.job_runs.get(found[0]) if len(found) > 1 else None
        return kept if kept and not kept.open else None

    kept = await until_found(replaced)
    assert (await center.services.store.runs.get(kept.run)).state == "cancelled"
    items = (await center.admin.get(f"/api/v1/runs/{kept.run}/instances")).json()["items"]
    assert [line["instance"]["state"] for line in items] == ["stopped"]


async def test_a_failure_does_not_stop_the_schedule(center: RunningCenter, tmp_path: Path) -> None:
    """P3: the run of a due time fails and says why; the next due time has a run of its own."""
    tool, aside = tmp_path / "jobs" / "tool", tmp_path / "aside"
    await put(center, "lost", "go", overlap="skip")
    tool.rename(aside)
    failed = await until_found(lambda: _failed(center, "lost"))
    assert "cannot pack the package" in failed.reason
    aside.rename(tool)
    before = len(await finished(center, "lost", 0))
    await until_found(lambda: finished(center, "lost", before + 2))


async def _failed(center: RunningCenter, job: str) -> Any:
    for one in await fires(center, job, "fired"):
        run = await center.services.store.runs.get(one["run"]) if one["run"] else None
        if run and run.state == "failed":
            return run
    return None
