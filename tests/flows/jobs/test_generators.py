"""Generators from document to requests: a real center, real boxes, a real agent (D1)."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from skep.cli.main import run as command_line
from skep.jobs.generators.sitemap_source import maps_run
from skep.model.jobs.documents import read_documents
from skep.model.jobs.generator_progress import Generation
from skep.testing.grounds.centers import RunningCenter, running_center
from skep.testing.grounds.jobs import fired, local_agent, until_found
from skep.testing.site import DemoSite

EXAMPLES = Path(__file__).parents[3] / "examples"
SECONDS = 60.0
QUICK: dict[str, Any] = {
    "egress_allow": ["127.0.0.0/8"],
    "jobs_keep_every": 0.05,
    "jobs_restart_first": 0.05,
    "jobs_test_seconds": 5.0,
}


@pytest.fixture
async def center(tmp_path: Path) -> AsyncIterator[RunningCenter]:
    """Nothing is downloaded: what generators put in stays there to be counted."""
    folder = tmp_path / "jobs"
    folder.mkdir()
    async with running_center(tmp_path / "data", **QUICK, jobs_folder=str(folder)) as running:
        yield running


@pytest.fixture
async def with_agent(center: RunningCenter) -> AsyncIterator[RunningCenter]:
    async with local_agent(center):
        yield center


async def put(center: RunningCenter, name: str, *generators: Any, **more: Any) -> Any:
    document = {"name": name, "generators": list(generators), **more}
    return await center.admin.put(f"/api/v1/jobs/{name}", document)


async def through(center: RunningCenter, run: str) -> list[Generation]:
    """The figures of a run's generators, as soon as all of them have ended."""

    async def look() -> Any:
        found = await center.services.store.generations.of(run)
        return found if found and all(one.state != "running" for one in found) else None

    found: list[Generation] = await until_found(look)
    return found


async def ran(center: RunningCenter, *generators: Any, **more: Any) -> list[Generation]:
    answer = await put(center, "j", *generators, **more)
    assert answer.status == 200, answer.content
    return await through(center, await fired(center, "j"))


async def state_of(center: RunningCenter, run: str) -> str:
    return str((await center.services.store.runs.get(run)).state)


def figures(one: Generation) -> tuple[str, int, int, int, int]:
    return (str(one.state), one.yielded, one.taken, one.known, one.bad)


PYTHON = """
class Request:
    def __init__(self, url, **more):
        self.url = url
        self.__dict__.update(more)

def generate(start, count):
    for n in range(start, start + count):
        yield f"http://127.0.0.1:9/{n}"
    yield {"uri": "http://127.0.0.1:9/post", "method": "POST", "body": "a=b",
           "headers": {"X-A": "b"}, "meta": {"n": 1}, "priority": 0}
    yield Request("http://127.0.0.1:9/request", meta={"n": 2}, priority=1)
    yield "http://127.0.0.1:9/0"
"""


async def test_python_yields_uris_dicts_and_requests(center: RunningCenter) -> None:
    """D1: arguments go in; URIs with method, headers, body, meta and priority come out."""
    code = {"kind": "python", "name": "numbers", "code": PYTHON, "priority": 3}
    (one,) = await ran(center, {**code, "arguments": {"start": 0, "count": 5}})
    assert figures(one) == ("done", 8, 7, 1, 0)
    assert (one.name, one.kind, one.starts) == ("numbers", "python", 1)
    assert one.seconds > 0
    found = {}
    for number in range(1, 8):
        view = await center.services.store.requests.get(number)
        found[view.uri.rpartition("/")[2]] = view.priority
    assert found == {**{str(n): 3 for n in range(5)}, "post": 0, "request": 1}


async def test_async_generators_and_lists_that_are_returned(center: RunningCenter) -> None:
    streaming = "async def generate():\n    for n in range(3):\n        yield f'http://a/{n}'\n"
    returned = "def generate(**_):\n    return ['http://a/1', 'http://a/7']\n"
    found = await ran(
        center, {"kind": "python", "code": streaming}, {"kind": "python", "code": returned}
    )
    assert sum(one.taken for one in found) == 4
    assert [one.yielded for one in found] == [3, 2]


async def test_shell_prints_lines(center: RunningCenter) -> None:
    """D1: one URI or one JSON object per line; arguments are in the environment."""
    script = (
        "# a comment\n"
        'for n in 1 2 3; do echo "http://$SKEP_ARG_HOST/$n"; done\n'
        "echo '# not a URI'\necho\n"
        'echo \'{"uri": "http://b/x", "priority": -1, "meta": {"a": 1}}\'\n'
        "echo for the log >&2\n"
    )
    (one,) = await ran(center, {"kind": "shell", "code": script, "arguments": {"HOST": "a"}})
    assert figures(one) == ("done", 4, 4, 0, 0)


async def test_files_and_lists(center: RunningCenter, tmp_path: Path) -> None:
    lines = [f"http://a/{n}" for n in range(2500)]
    (tmp_path / "jobs" / "uris.txt").write_text("\n".join(["# head", *lines, "nonsense"]))
    again = {"uri": "http://a/1", "again": True}
    listed, filed = await ran(
        center,
        {"kind": "list", "uris": ["http://a/1", again, again, "http://b/"]},
        {"kind": "file", "path": "uris.txt"},
    )
    assert (listed.yielded, filed.yielded, filed.bad) == (4, 2501, 1)
    assert listed.taken + filed.taken == 2500 + 3
    assert "'nonsense' is not a URL" in filed.detail


async def test_sql_rows_become_requests(center: RunningCenter, tmp_path: Path) -> None:
    """D1: read-only; columns that no request has are meta."""
    with sqlite3.connect(tmp_path / "jobs" / "shop.db") as shop:
        shop.execute("CREATE TABLE goods (id INTEGER, page TEXT, rank INTEGER)")
        rows = [(n, f"http://a/{n}", n % 6) for n in range(3000)]
        shop.executemany("INSERT INTO goods VALUES (?, ?, ?)", rows)
    query = "SELECT page AS uri, rank AS priority, id FROM goods"
    (one,) = await ran(center, {"kind": "sql", "url": "sqlite:///shop.db", "query": query})
    assert figures(one) == ("done", 3000, 3000, 0, 0)
    assert (await center.services.store.requests.get(2)).priority == 1
    writing = "WITH x AS (SELECT 1) DELETE FROM goods"
    await put(center, "w", {"kind": "sql", "url": "sqlite:///shop.db", "query": writing})
    (failed,) = await through(center, await fired(center, "w"))
    assert (failed.state, "readonly" in failed.detail) == ("failed", True), failed
    hidden = {"kind": "sql", "url": "env:SKEP_CENTER_TOKEN", "query": "SELECT 1"}
    told = {"kind": "sql", "url": "postgresql://u:s3cret@db/x", "query": "DELETE FROM x"}
    answer = await put(center, "bad", hidden, told)
    assert answer.status == 400
    assert "reserved for the center" in answer.problem().detail
    assert "must begin with SELECT" in answer.problem().detail
    assert "s3cret" not in answer.problem().detail
    outside = {"kind": "sql", "url": "sqlite:///../data/skep.db", "query": "SELECT 1"}
    await put(center, "o", outside)
    (failed,) = await through(center, await fired(center, "o"))
    assert "outside the folder for jobs" in failed.detail


async def test_a_generator_is_tested_before_it_is_stored(center: RunningCenter) -> None:
    """Issue 4: a failing test refuses the document as a whole; `test=false` skips it."""
    broken = {"kind": "python", "name": "b", "code": "def generate():\n    yield 1 / 0\n"}
    answer = await put(center, "j", {"kind": "list", "uris": ["http://a/"]}, broken)
    assert (answer.status, answer.problem().code) == (400, "invalid_job")
    assert "generators[1].code: its test failed: ZeroDivisionError" in answer.problem().detail
    assert "line 2, in generate" in answer.problem().detail
    assert (await center.admin.get("/api/v1/jobs/j")).problem().code == "unknown_job"
    document = {"name": "j", "generators": [broken]}
    skipped = await center.admin.put("/api/v1/jobs/j?test=false", document)
    assert skipped.json()["what"] == "created"
    assert (await center.admin.put("/api/v1/jobs/j", document)).json()["what"] == "unchanged"
    for code, told in (
        ("def generate(:\n", "invalid syntax"),
        ("def other():\n    pass\n", "no function `generate(...)`"),
        ("def generate():\n    yield 'nonsense'\n", "none of 1 URIs is valid"),
        ("def generate():\n    yield 7\n", "must yield URIs, dicts or requests"),
    ):
        answer = await put(center, "k", {"kind": "python", "code": code})
        assert told in answer.problem().detail, answer.content
    shell = await put(center, "k", {"kind": "shell", "code": "echo http://a/; exit 3"})
    assert "the script ended with exit code 3" in shell.problem().detail
    assert (await put(center, "e", {"kind": "python", "code": ENDLESS})).status == 200


ENDLESS = """
def generate():
    n = 0
    while True:
        n += 1
        yield f"http://a/{n}"
"""
SLEEPY = "import time\ndef generate():\n    time.sleep(99)\n"
SOME_BAD = "def generate():\n    yield from ['http://a/', 'b', 'c', 'd']\n"
HOG = "def generate():\n    x = bytearray(2**40)\n    yield 'http://a/'\n"
NO_NEWLINE = "head -c 9000000 /dev/zero | tr '\\0' x"
FAILURES: dict[str, tuple[dict[str, Any], str]] = {
    "exception": ({"code": "def generate():\n    yield 'http://a/'\n    oh_no"}, "NameError"),
    "time": ({"code": SLEEPY, "limits": {"time": 1}}, "it took longer than its 1 s"),
    "bad": (
        {"code": SOME_BAD, "bad_limit": 2},
        "3 of 4 URIs are invalid, more than its bad_limit of 2; the last one: 'd' is not a URL",
    ),
    "many": ({"code": ENDLESS, "limit": 5000}, "limit exceeded: more than 5000 URIs"),
    "large": ({"code": "def generate():\n    yield 'http://a/' + 'x' * 2**22"}, "limit exceeded: "),
    "memory": ({"code": HOG}, "MemoryError"),
    "line": ({"kind": "shell", "code": NO_NEWLINE}, "printed a line of more than"),
    "exit": ({"kind": "shell", "code": "echo why >&2; exit 3"}, "exit code 3; it wrote: why"),
    "file": ({"kind": "shell", "code": "exec cat /etc/shadow"}, "it wrote: "),
}


@pytest.mark.parametrize("what", FAILURES)
async def test_failures_are_told(center: RunningCenter, what: str) -> None:
    """Each failure is in the figures, in the run's reason and in an alert."""
    generator, told = FAILURES[what]
    document = {"name": "j", "generators": [{"kind": "python", "name": "g", **generator}]}
    assert (await center.admin.put("/api/v1/jobs/j?test=false", document)).status == 200
    run = await fired(center, "j")
    (one,) = await through(center, run)
    assert (one.state, told in one.detail) == ("failed", True), one
    await until_found(lambda: _is(center, run, "failed"))
    assert told in (await center.services.store.runs.get(run)).reason
    alerts = (await center.admin.get("/api/v1/alerts")).json()["items"]
    assert any(a["kind"] == "job_failed" and told in a["detail"] for a in alerts)


async def _is(center: RunningCenter, run: str, state: str) -> bool:
    return await state_of(center, run) == state


async def test_a_window_over_runs(center: RunningCenter) -> None:
    """Issue 4: within the window a URI is taken once over all runs of its job."""
    uris = [f"http://a/{n}" for n in range(10)]
    listed = {"kind": "list", "uris": uris}
    (first,) = await ran(center, listed, settings={"dedup": 3600})
    (second,) = await ran(
        center, {**listed, "uris": [*uris, "http://b/"]}, settings={"dedup": 3600}
    )
    assert (first.taken, second.taken, second.recent) == (10, 1, 10)
    (third,) = await ran(center, listed)
    assert third.taken == 10, "without a window every run takes its own"
    answer = await put(center, "other", listed, settings={"dedup": 3600})
    assert answer.status == 200
    (other,) = await through(center, await fired(center, "other"))
    assert other.taken == 10, "the window is the job's own"
    assert await center.services.store.generations.forget(4e9, 100) == 21


SLOW = """
import time
def generate(base):
    for n in range(3):
        yield f"{base}/page/{n}"
        time.sleep(0.6)
"""


async def test_a_run_is_finished_after_its_generators(with_agent: RunningCenter) -> None:
    """The requests that came first have long ended when the last URI comes."""
    center = with_agent
    async with DemoSite(pages=5) as site:
        answer = await put(
            center, "j", {"kind": "python", "code": SLOW, "arguments": {"base": site.url}}
        )
        assert answer.status == 200, answer.content
        run = await fired(center, "j")
        await until_found(lambda: _is(center, run, "finished"))
    (one,) = await center.services.store.generations.of(run)
    assert figures(one) == ("done", 3, 3, 0, 0)
    assert (await center.ledger(run)).accepted == 3
    view = (await center.admin.get(f"/api/v1/runs/{run}/generators")).json()["items"]
    assert [(g["name"], g["taken"], g["known"]) for g in view] == [("python 0", 3, 0)]


async def test_a_cron_line_of_its_own(center: RunningCenter) -> None:
    """Issue 4: it runs by itself, alone; the job's own runs leave it out."""
    often = {"kind": "list", "name": "often", "uris": ["http://a/"], "cron": "* * * * * *"}
    plain = {"kind": "list", "name": "plain", "uris": ["http://b/"]}
    answer = await put(center, "j", often, plain)
    assert answer.status == 200, answer.content
    store = center.services.store

    async def fires() -> Any:
        found = await store.job_runs.of("j", 10)
        return [one for one in found if one.fire_key.startswith("generator often ")]

    by_itself = (await until_found(fires))[-1]
    assert [one.name for one in await through(center, by_itself.run)] == ["often"]
    assert [one.name for one in await through(center, await fired(center, "j"))] == ["plain"]
    assert [one.job for one in await store.fires.planned()] == ["j#often"]
    assert (await put(center, "j", plain)).status == 200
    assert await store.fires.planned() == [], "its plan goes with it"
    nameless = await put(center, "k", {**often, "name": ""}, {**often, "cron": "nonsense"})
    assert "generators[0].name: a generator with a cron line" in nameless.problem().detail
    assert "generators[1].cron" in nameless.problem().detail


async def test_agents_fetch_sitemaps(with_agent: RunningCenter) -> None:
    """From robots.txt to the sitemap to the pages; whole, though the job cuts its pages."""
    async with DemoSite(pages=300) as site:
        generator = {"kind": "sitemap", "name": "map", "url": f"{site.url}/robots.txt"}
        settings = {"content": {"max_bytes": 100}}
        answer = await put(with_agent, "j", generator, settings=settings)
        assert answer.status == 200, answer.content
        run = await fired(with_agent, "j")
        (one,) = await through(with_agent, run)
        assert figures(one) == ("done", 300, 300, 0, 0)

        async def finished() -> bool:
            return (await with_agent.services.store.runs.get(run)).state == "finished"

        await until_found(finished)
        assert (site.hits["/sitemap.xml"], site.hits["/page/7"]) == (1, 1)
    maps = await with_agent.services.store.runs.get(maps_run(run, 0))
    assert (maps.state, maps.job) == ("finished", "j")
    ledger = await with_agent.ledger(run)
    assert (ledger.accepted, ledger.done) == (300, 300), "sitemaps are not among the pages"


async def test_a_sitemap_that_is_not_there(with_agent: RunningCenter) -> None:
    """The reason names it; after a fix the run goes on by `resume`."""
    async with DemoSite(pages=3) as site:
        await put(with_agent, "j", {"kind": "sitemap", "url": f"{site.url}/nothing.xml"})
        run = await fired(with_agent, "j")
        (one,) = await through(with_agent, run)
        assert (one.state, "cannot fetch" in one.detail) == ("failed", True)
        assert "404" in one.detail

        async def failed() -> bool:
            return (await with_agent.services.store.runs.get(run)).state == "failed"

        await until_found(failed)
        stopped = await with_agent.admin.post("/api/v1/jobs/j/stop")
        assert stopped.status == 200, stopped.content


@pytest.mark.parametrize(("verb", "state"), [("cancel", "cancelled"), ("finish", "finished")])
async def test_a_user_ends_the_run_of_the_sitemaps(
    with_agent: RunningCenter, verb: str, state: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Checkpoint and ended run: the generator fails with the reason and does not try again."""
    async with DemoSite(pages=30, latency=0.3) as site:
        await put(with_agent, "j", {"kind": "sitemap", "url": f"{site.url}/sitemap.xml"})
        store = with_agent.services.store
        checkpoint, ended = store.checkpoints.checkpoint, asyncio.Event()

        async def ended_before(run: str, *rest: Any) -> Any:
            """The sitemap is read; a user ends its run before that is stored."""
            if not ended.is_set():
                ended.set()
                answer = await with_agent.admin.post(f"/api/v1/runs/{run}/{verb}")
                assert answer.status == 200
            return await checkpoint(run, *rest)

        monkeypatch.setattr(store.checkpoints, "checkpoint", ended_before)
        run = await fired(with_agent, "j")
        (one,) = await through(with_agent, run)
        assert one.state == "failed"
        assert f"which fetches its sitemaps, is {state} ({state} by message)" in one.detail

        async def failed() -> bool:
            return (await store.runs.get(run)).state == "failed"

        await until_found(failed)
        assert (await with_agent.admin.post("/api/v1/jobs/j/stop")).status == 200
        assert (await with_agent.services.store.runs.get(maps_run(run, 0))).state == state


async def test_the_example(with_agent: RunningCenter, capsys: pytest.CaptureFixture[str]) -> None:
    """Four ways to the same pages: each is taken once, and only once within the window."""
    async with DemoSite(pages=30) as site:
        text = (EXAMPLES / "generators.yaml").read_text()
        (document,) = read_documents(text.replace("http://127.0.0.1:8421", site.url), "example")
        answer = await with_agent.admin.put("/api/v1/jobs/demo-generators", document)
        assert answer.status == 200, answer.content
        found = await through(with_agent, await fired(with_agent, "demo-generators"))
        assert [(one.name, one.yielded) for one in found] == [
            ("numbers", 20),
            ("more", 15),
            ("map", 30),
        ]
        assert sum(one.taken for one in found) == 30
        again = await through(with_agent, await fired(with_agent, "demo-generators"))
        assert sum(one.taken for one in again) == 0
        words = ["generator", "ls", "demo-generators", "--data", str(with_agent.folder)]
        assert await asyncio.to_thread(command_line, words) == 0
        shown = capsys.readouterr().out.splitlines()
        assert [line.split()[0] for line in shown] == ["GENERATOR", "numbers", "more", "map"]
