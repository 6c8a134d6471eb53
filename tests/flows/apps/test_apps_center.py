"""Application jobs as a center sees them: a real center, agents that speak by hand (A8)."""

from __future__ import annotations

import asyncio
import io
import zipfile
from collections.abc import AsyncIterator, Awaitable, Callable
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from skep.center.http.authentication import Role
from skep.errors import SkepError
from skep.testing.doubles.app_agent import ManualAppAgent
from skep.testing.grounds.centers import RunningCenter, running_center
from skep.testing.grounds.jobs import until_found
from skep.wire.messages import AppLog, AppLogReply

QUICK: dict[str, Any] = {
    "jobs_keep_every": 0.05,
    "center_sweep_every": 0.05,
    "center_alive_after": 1.0,
}
SECRET = "not for the eyes of others"


@pytest.fixture
async def center(tmp_path: Path) -> AsyncIterator[RunningCenter]:
    folder = tmp_path / "jobs"
    (folder / "tool").mkdir(parents=True)
    (folder / "tool" / "main.py").write_text("print('hello')\n")
    (tmp_path / "data" / "secrets").mkdir(parents=True)
    (tmp_path / "data" / "secrets" / "key").write_text(f"{SECRET}\n")
    flags = {**QUICK, "jobs_folder": str(folder)}
    async with running_center(tmp_path / "data", **flags) as running:
        yield running


@pytest.fixture
async def hands(center: RunningCenter) -> AsyncIterator[Callable[..., Awaitable[ManualAppAgent]]]:
    """Agents by name, let go at the end."""
    made: list[ManualAppAgent] = []

    async def make(name: str, **about: Any) -> ManualAppAgent:
        made.append(await ManualAppAgent(center.agent, name, **about).start())
        return made[-1]

    yield make
    for hand in made:
        await hand.die()


Hands = Callable[..., Awaitable[ManualAppAgent]]


def tool(n: int = 1, **app: Any) -> dict[str, Any]:
    part = {"package": "tool", "command": ["python", "main.py"], **app}
    return {"app": part, "placement": {"strategy": "fixed", "n": n}}


async def started(center: RunningCenter, **document: Any) -> str:
    put = await center.admin.put("/api/v1/jobs/app", {"name": "app", **document})
    assert put.status == 200, put.content
    run: str = (await center.admin.post("/api/v1/jobs/app/run")).json()["run"]
    return run


async def instances(center: RunningCenter, run: str) -> list[Any]:
    lines = (await center.admin.get(f"/api/v1/runs/{run}/instances")).json()["items"]
    return [line["instance"] for line in lines]


async def in_state(center: RunningCenter, run: str, *states: str) -> list[Any]:
    async def look() -> list[Any]:
        found = await instances(center, run)
        return found if tuple(one["state"] for one in found) == states else []

    found: list[Any] = await until_found(look)
    return found


async def run_is(center: RunningCenter, run: str, state: str) -> Any:
    async def look() -> Any:
        found = (await center.admin.get(f"/api/v1/runs/{run}")).json()["run"]
        return found if found["state"] == state else None

    return await until_found(look)


async def test_an_application_runs_on_two_agents_and_finishes(
    center: RunningCenter, hands: Hands
) -> None:
    """A8, C4: allocated, placed, told by push, fed with its package and secret, finished."""
    a1, a2 = await hands("a1"), await hands("a2")
    plain = await hands("plain", kinds=("http",))
    app = {"environment": {"A": "1"}, "secrets": {"KEY": "key"}}
    run = await started(center, **tool(2, **app))
    found = await in_state(center, run, "running", "running")
    assert {one["agent"] for one in found} == {"a1", "a2"}
    assert "apps" in a1.commands
    assert not plain.has
    (hosted,) = a1.has.values()
    spec = hosted.wish.spec
    assert (spec.command, spec.environment) == (("python", "main.py"), {"A": "1", "KEY": SECRET})
    package = await center.agent.get(f"/node/packages/{spec.package}")
    assert sha256(package.content).hexdigest() == spec.package
    assert zipfile.ZipFile(io.BytesIO(package.content)).read("main.py") == b"print('hello')\n"
    for hand in (a1, a2):
        for key in list(hand.has):
            await hand.end(key, 0)
    await run_is(center, run, "finished")
    assert not a1.has
    kept = await until_found(lambda: _closed(center, run))
    assert kept.outcome == "finished: instances: 2 done"


async def _closed(center: RunningCenter, run: str) -> Any:
    kept = await center.services.store.job_runs.get(run)
    return kept if kept and not kept.open else None


async def test_a_secret_is_never_shown(center: RunningCenter, hands: Hands) -> None:
    """Fault 68: not in the job, its difference, its run, its instances, nor in the database."""
    await hands("a1")
    run = await started(center, **tool(secrets={"KEY": "key"}, environment={"P": "word"}))
    await in_state(center, run, "running")
    viewer = await center.caller(Role.VIEWER)
    seen = b""
    for path in ("jobs/app", "jobs", f"runs/{run}", f"runs/{run}/instances", f"why/runs/{run}"):
        seen += (await viewer.get(f"/api/v1/{path}")).content
    assert b'"secrets":{"KEY":"key"}' in seen
    assert b'"P":"***"' in seen
    seen += (await center.admin.get("/api/v1/jobs/app/diff?old=0")).content
    disk = b"".join(path.read_bytes() for path in center.folder.glob("skep.db*"))
    assert SECRET.encode() not in seen + disk


async def test_too_few_agents(center: RunningCenter, hands: Hands) -> None:
    """C4: the run does not start, and the reason names who is missing and why."""
    await hands("a1", kinds=("http", "app"))
    await hands("a2", kinds=("http",))
    put = await center.admin.put("/api/v1/jobs/app", {"name": "app", **tool(2)})
    assert put.status == 200, put.content
    problem = (await center.admin.post("/api/v1/jobs/app/run")).problem()
    assert problem.code == "not_enough_agents"
    assert "2 agents are needed and 1 of 2 can be had" in problem.detail
    assert "a2 (capability: it does not offer app" in problem.detail


async def test_pause_continue_and_stop(center: RunningCenter, hands: Hands) -> None:
    """R2: by message to the job's name, as with any job."""
    a1 = await hands("a1")
    run = await started(center, **tool())
    await in_state(center, run, "running")
    answer = (await center.admin.post("/api/v1/jobs/app/pause?wait=20")).json()
    (reached,) = answer["reached"]
    assert (reached["kind"], reached["name"], reached["obeyed"]) == ("instance", "0 on a1", True)
    await in_state(center, run, "paused")
    assert next(iter(a1.has.values())).state == "paused"
    await center.admin.post("/api/v1/jobs/app/resume")
    await in_state(center, run, "running")
    await center.admin.post("/api/v1/jobs/app/stop")
    (one,) = await in_state(center, run, "stopped")
    assert (one["token"], one["starts"]) == (1, 1), "paused and continued, not started again"
    await run_is(center, run, "cancelled")
    assert not a1.has
    await until_found(lambda: _closed(center, run))


async def test_one_that_fails_fails_its_run(center: RunningCenter, hands: Hands) -> None:
    """A8: the reason names instance, agent, exit code and last line; the others stop, and a
    person can continue it."""
    by_name = {name: await hands(name) for name in ("a1", "a2")}
    run = await started(center, **tool(2))
    found = await in_state(center, run, "running", "running")
    bad = by_name[found[1]["agent"]]
    await bad.write((run, 1), b"fine\n\x1b[31mno such table\x07\n\n")
    await bad.end((run, 1), 3, "6 starts failed in a row")
    failed = await run_is(center, run, "failed")
    assert failed["reason"] == (
        f"instance 1 on agent {bad.id} failed with exit code 3: 6 starts failed in a row;"
        " its last line: [31mno such table"
    )
    await in_state(center, run, "stopped", "failed")
    await center.admin.post("/api/v1/jobs/app/resume")
    again = await in_state(center, run, "running", "running")
    assert [one["token"] for one in again] == [3, 3], "back to no agent, then placed"
    assert {one["agent"] for one in again} == {"a1", "a2"}


async def test_restart_and_stop_of_one_instance(center: RunningCenter, hands: Hands) -> None:
    """A8: a restart is a higher round; a stop lasts until a restart."""
    await hands("a1")
    await hands("a2")
    run = await started(center, **tool(2))
    await in_state(center, run, "running", "running")
    path = f"/api/v1/runs/{run}/instances"
    assert (await center.admin.post(f"{path}/0/restart")).json()["instance"]["round"] == 1
    await until_found(lambda: _starts(center, run, 0, 2))
    stopped = (await center.admin.post(f"{path}/1/stop")).json()
    assert (stopped["wanted"], stopped["instance"]["halted"]) == ("stopped", True)
    await in_state(center, run, "running", "stopped")
    assert (await center.admin.post(f"{path}/1/restart")).status == 200
    found = await in_state(center, run, "running", "running")
    assert (found[1]["token"], found[1]["starts"]) == (3, 2), "waits, then placed"
    assert (await center.admin.post(f"{path}/9/stop")).problem().code == "not_found"
    for no in (0, 1):
        await center.admin.post(f"{path}/{no}/stop")
    ended = await run_is(center, run, "cancelled")
    assert ended["reason"] == "every instance was stopped"
    assert (await center.admin.post(f"{path}/0/restart")).problem().code == "conflict"


async def _starts(center: RunningCenter, run: str, no: int, count: int) -> bool:
    return bool((await instances(center, run))[no]["starts"] == count)


async def test_an_agent_that_is_lost(center: RunningCenter, hands: Hands) -> None:
    """A8: after lost_seconds another agent has the instance, under a higher token, and the
    first one is told nothing of it any more."""
    by_name = {name: await hands(name) for name in ("a1", "a2")}
    run = await started(center, **tool(lost_seconds=4.0))
    (old,) = await in_state(center, run, "running")
    lost = by_name.pop(old["agent"])
    (other,) = by_name.values()
    await lost.die()
    await until_found(lambda: asyncio.sleep(0, other.has))
    (new,) = await in_state(center, run, "running")
    assert (new["agent"], new["token"], new["starts"]) == (other.id, 2, 2)
    before = await center.metric("skep_fenced_writes_total")
    reports = [one.report() for one in lost.has.values()]
    assert await lost.told(reports) == [], "old token refused"
    assert await center.metric("skep_fenced_writes_total") == before + 1
    piece = AppLog(lost.id, run, 0, 1, 0, b"late")
    assert (await lost.call("app-log", piece)).problem().code == "stale_token"
    seats = (await center.admin.get(f"/api/v1/runs/{run}")).json()["chosen"]
    assert [seat["agent"] for seat in seats if not seat["why"]] == [other.id]


async def test_what_may_never_start_again_fails_with_its_agent(
    center: RunningCenter, hands: Hands
) -> None:
    a1 = await hands("a1")
    run = await started(center, **tool(lost_seconds=0.5, restart="never"))
    await in_state(center, run, "running")
    await hands("a2")
    await a1.die()
    failed = await run_is(center, run, "failed")
    assert "instance 0 on agent a1 failed: its agent a1 was lost" in failed["reason"]


async def test_cordoned_agents_keep_and_drained_ones_hand_over(
    center: RunningCenter, hands: Hands
) -> None:
    """A8, C3: and `skep why` says whom a waiting instance waits for."""
    a1 = await hands("a1")
    run = await started(center, **tool())
    await in_state(center, run, "running")
    await center.admin.post("/api/v1/agents/a1/cordon")
    await a1.ask()
    assert (await instances(center, run))[0]["state"] == "running"
    await center.admin.post("/api/v1/agents/a1/drain")
    (one,) = await in_state(center, run, "waiting")
    assert not one["agent"]
    assert not a1.has
    why = (await center.admin.get(f"/api/v1/why/runs/{run}")).json()
    assert (why["waiting"], why["reasons"][0]["code"]) == (True, "instance_waits")
    assert why["reasons"][0]["text"].startswith("instance 0 waits: no agent is available for it")
    await hands("a2")
    (one,) = await in_state(center, run, "running")
    assert one["agent"] == "a2"


async def test_logs_are_kept_once_and_followed(center: RunningCenter, hands: Hands) -> None:
    """A8: a piece that is sent twice is kept once; a reader waits for the next one."""
    a1 = await hands("a1")
    run = await started(center, **tool())
    await in_state(center, run, "running")
    key, path = (run, 0), f"/api/v1/runs/{run}/instances/0/log"
    assert await a1.write(key, "zwölf ".encode()) == 7
    twice = AppLog("a1", run, 0, 1, 0, "zwölf ".encode())
    assert (await a1.call("app-log", twice)).read(AppLogReply).next == 7
    part = (await center.admin.get(f"{path}?limit=3")).json()
    assert (part["text"], part["next"], part["end"]) == ("zw", 2, 7), "no half characters"
    assert (await center.admin.get(f"{path}?from=-4")).json()["text"].endswith("lf ")
    waits = asyncio.create_task(center.admin.get(f"{path}?from=7&wait=20"))
    await asyncio.sleep(0)
    assert not waits.done()
    await a1.write(key, b"boxers\n")
    assert (await waits).json()["text"] == "boxers\n"
    await a1.end(key, 0)
    last = (await center.admin.get(f"{path}?from=14&wait=20")).json()
    assert (last["text"], last["over"]) == ("", True), "no more is expected"
    big = AppLog("a1", run, 0, 1, 14, bytes(2**18 + 1))
    assert (await a1.call("app-log", big)).problem().code == "too_large"
    assert (await center.admin.get(f"/api/v1/runs/{run}/instances/5/log")).status == 404


async def test_an_agent_speaks_for_itself_only(center: RunningCenter, hands: Hands) -> None:
    """C2, fault 53: another agent's token, an old session and foreign packages are refused."""
    a1 = await hands("a1")
    run = await started(center, **tool())
    await in_state(center, run, "running")
    spec = next(iter(a1.has.values())).wish.spec
    other = await center.caller(Role.AGENT, "b1")
    stranger = ManualAppAgent(other, "a1")
    for name, body in (("apps", {"agent": "a1"}), ("app-log", AppLog("a1", run, 0, 1, 0, b"x"))):
        assert (await stranger.call(name, body)).problem().code == "forbidden"
    package = f"/node/packages/{spec.package}"
    assert (await other.get(package)).problem().code == "not_found"
    assert (await center.anyone.get(package)).status == 401
    assert (await center.agent.get("/node/packages/..")).status in {400, 404}
    assert (await center.agent.get(f"/node/packages/{'0' * 64}")).status == 404


async def test_a_secret_that_went_away_fails_its_instance_alone(
    center: RunningCenter, hands: Hands
) -> None:
    a1 = await hands("a1")
    run = await started(center, **tool(secrets={"KEY": "key"}))
    await in_state(center, run, "running")
    (center.folder / "secrets" / "key").unlink()
    assert await a1.ask() == []
    failed = await run_is(center, run, "failed")
    assert "cannot read the secret 'key'" in failed["reason"]


async def test_a_package_that_cannot_be_packed(center: RunningCenter, hands: Hands) -> None:
    """The run has failed and says why; when the cause is fixed the run can be continued."""
    await hands("a1")
    folder = Path(center.services.settings.jobs.folder) / "tool"
    (folder / "out").symlink_to("/etc/hostname")
    run = await started(center, **tool())
    failed = await run_is(center, run, "failed")
    assert failed["reason"] == "out is a link out of the folder"
    (folder / "out").unlink()
    await center.admin.post("/api/v1/jobs/app/resume")
    await in_state(center, run, "running")


async def test_everything_wrong_is_told_at_once(center: RunningCenter) -> None:
    """D1: with its path; nothing is stored."""
    app = {"package": "../x", "image": "-rm", "secrets": {"K": "none", "L": "../key"}}
    document = {"app": app, "requests": ["http://a/"], "placement": {"strategy": "chained"}}
    answer = await center.admin.put("/api/v1/jobs/bad", {"name": "bad", **document})
    lines = answer.problem().detail.splitlines()
    paths = {line.partition(":")[0] for line in lines}
    assert paths == {
        "requests",
        "placement.strategy",
        "app",
        "app.image",
        "app.command",
        "app.package",
        "app.secrets.K",
        "app.secrets.L",
    }
    with pytest.raises(SkepError):
        await center.services.store.jobs.get("bad")
