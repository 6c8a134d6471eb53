"""Generators in their box, paused and resumed, alone by hand: a real center, real children."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from skep.model.jobs.generator_progress import Generation
from skep.testing.grounds.centers import RunningCenter, running_center
from skep.testing.polling import until
from skep.testing.site import DemoSite

SECONDS = 60.0
QUICK: dict[str, Any] = {"egress_allow": ["127.0.0.0/8"], "jobs_keep_every": 0.05}


@pytest.fixture
async def center(tmp_path: Path) -> AsyncIterator[RunningCenter]:
    async with running_center(tmp_path / "data", **QUICK) as running:
        yield running


async def begun(center: RunningCenter, job: str, *generators: Any, which: str = "") -> str:
    document = {"name": job, "generators": list(generators)}
    put = await center.admin.put(f"/api/v1/jobs/{job}?test=false", document)
    assert put.status == 200, put.content
    answer = await center.admin.post(f"/api/v1/jobs/{job}/run?generator={which}")
    run: str = answer.json()["run"]
    return run


async def figures(center: RunningCenter, run: str, starts: int = 1) -> list[Generation]:
    """As soon as all have ended."""

    def ended(found: list[Generation]) -> bool:
        return all(one.state != "running" and one.starts >= starts for one in found)

    generations = center.services.store.generations
    return await until(
        lambda: generations.of(run), lambda found: found and ended(found), seconds=SECONDS
    )


def looking(path: Path) -> str:
    return f"def generate():\n    yield 'http://a/' + open({str(path)!r}).read()\n"


@pytest.mark.needs("bwrap")
async def test_the_centers_secrets_are_out_of_sight(center: RunningCenter) -> None:
    """Faults 50, 51: no file, process or variable of the center can be seen."""
    token = next(center.folder.rglob("*.db"))
    assert token.exists()
    (one,) = await figures(
        center, await begun(center, "j", {"kind": "python", "code": looking(token)})
    )
    assert (one.state, "FileNotFoundError" in one.detail) == ("failed", True), one
    around = (
        'echo "http://a/$(env | cut -d= -f1 | sort | tr "\\n" ,)"; '
        'echo "http://b/$(ls /proc | grep -c "^[0-9]")"'
    )
    run = await begun(center, "k", {"kind": "shell", "code": around})
    await figures(center, run)
    seen = [(await center.services.store.requests.get(n)).uri for n in (1, 2)]
    assert "TOKEN" not in seen[0]
    assert int(seen[1].rpartition("/")[2]) < 10, "processes of the box alone"


FETCHING = """
import json, urllib.request
def generate(url):
    with urllib.request.urlopen(url) as page:
        for path in json.load(page):
            yield url + path
"""


@pytest.mark.needs("bwrap")
async def test_the_network_only_when_it_is_asked_for(center: RunningCenter) -> None:
    """Under the egress rules of the center, through the door of the box."""
    async with DemoSite(pages=3) as site:
        code = {"kind": "python", "code": FETCHING, "arguments": {"url": f"{site.url}/hits"}}
        (open_one,) = await figures(center, await begun(center, "j", {**code, "network": True}))
        assert (open_one.state, open_one.taken) == ("done", 1), open_one
        (shut,) = await figures(center, await begun(center, "k", code))
        assert (shut.state, "URLError" in shut.detail) == ("failed", True), shut
        assert site.hits["/hits"] == 1


async def test_a_paused_run_has_no_process(center: RunningCenter) -> None:
    """R2: resumed, the generator begins again, and what it took is known."""
    slow = (
        "import time\ndef generate():\n    for n in range(60):\n"
        "        yield f'http://a/{n}'\n        time.sleep(0.03)\n"
    )
    run = await begun(center, "j", {"kind": "python", "code": slow})
    store, boxes = center.services.store, center.services.jobs.feeder.sources.boxes
    await until(
        lambda: store.generations.of(run),
        lambda found: found and found[0].taken >= 10,
        seconds=SECONDS,
    )
    assert (await center.admin.post("/api/v1/jobs/j/pause")).status == 200
    await until(lambda: not boxes.children, seconds=SECONDS)
    paused = (await center.ledger(run)).accepted
    assert 10 <= paused < 60
    assert (await center.admin.post("/api/v1/jobs/j/resume")).status == 200
    (one,) = await figures(center, run, starts=2)
    assert (one.state, one.starts, one.yielded, one.taken) == ("done", 2, 60, 60)
    assert (await center.ledger(run)).accepted == 60


async def test_a_failed_generator_is_begun_again_by_resume(center: RunningCenter) -> None:
    code = "def generate():\n    yield 'http://a/'\n    raise OSError('not yet')\n"
    run = await begun(center, "j", {"kind": "python", "code": code})
    (one,) = await figures(center, run)
    assert (one.state, one.starts) == ("failed", 1)
    await until(
        lambda: center.services.store.runs.get(run),
        lambda found: found.state == "failed",
        seconds=SECONDS,
    )
    assert (await center.admin.post("/api/v1/jobs/j/resume")).status == 200
    (again,) = await figures(center, run, starts=2)
    assert (again.state, again.taken, "not yet" in again.detail) == ("failed", 1, True)


async def test_one_generator_by_hand(center: RunningCenter) -> None:
    first = {"kind": "list", "name": "first", "uris": ["http://a/"], "cron": "0 0 1 1 *"}
    second = {**first, "name": "second"}
    run = await begun(center, "j", first, second, which="second")
    assert [one.name for one in await figures(center, run)] == ["second"]
    unknown = await center.admin.post("/api/v1/jobs/j/run?generator=third")
    assert "no generator 'third'" in unknown.problem().detail
    fires = await center.admin.get("/api/v1/jobs/j/fires?generator=second")
    assert fires.json()["items"] == []
    planned = (await center.admin.get("/api/v1/schedules")).json()["items"]
    assert [line["job"] for line in planned] == ["j#first", "j#second"]


async def test_operators_may_switch_code_off(tmp_path: Path) -> None:
    async with running_center(tmp_path, **QUICK, jobs_code="never") as center:
        code = {"kind": "shell", "code": "echo http://a/"}
        (one,) = await figures(center, await begun(center, "j", code))
        assert (one.state, "disabled" in one.detail) == ("failed", True)
        listed = {"kind": "list", "uris": ["http://a/"]}
        (other,) = await figures(center, await begun(center, "k", listed))
        assert other.state == "done"
