"""What the previous version stored and sends is understood by this one, and the other way round.

The previous version runs from a copy that git makes of its history, as commands, with the flags
and log lines of that time. It leaves a data folder, an agent's folder with reports that were not
sent, lanes in Redis and a configuration file; this version opens each of them and goes on.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import struct
import subprocess
import sys
import time
import tomllib
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import msgspec
import pytest
from redis import Redis

from skep import settings
from skep.testing.fleet import doubled_rows
from skep.testing.needs import absent
from skep.testing.private import NotPermitted
from skep.testing.processes import AgentProcess, CenterProcess
from skep.testing.servers import Database
from skep.testing.site import DemoSite
from skep.testing.site_pages import Pages

ROOT = Path(__file__).parents[3]
#: The commit before names, folders and texts were changed everywhere.
PREVIOUS = "bcd86a0"
PREVIOUS_VERSION = "0.0.9"
PAGES = 80
LATENCY = 0.2
STEP = 0.03
#: Runs and their states in the folder that the previous version leaves.
STATES = {
    "ended": "finished",
    "stopped": "cancelled",
    "broken": "failed",
    "resting": "paused",
    "later": "running",
    "web": "running",
}
#: An agent that comes back after a minute still has its leases.
PATIENT = {"SKEP_CENTER_ALIVE_AFTER": "60", "SKEP_LANES_LEASE_SECONDS": "120"}
#: A few blocks are in the lane, one or two with the agent, the rest waits.
SLOW = {"SKEP_LANES_LOW_LIMIT": "12", "SKEP_AGENT_CONCURRENCY": "4"}
JOBS = """
name: nightly
note: Kept by the previous version.
requests: [{url}/page/70, {url}/page/71]
schedule: "30 2 * * *"
---
name: listed
generators: [{{kind: list, uris: [{url}/page/72, {url}/page/73]}}]
"""


@pytest.fixture(scope="session")
def previous(pytestconfig: pytest.Config) -> Path:
    """The package as it was, with a version of its own. Kept, so that it is compiled once."""
    assert pytestconfig.cache is not None
    kept = Path(pytestconfig.cache.mkdir("previous-version"))
    place = kept / PREVIOUS
    if not place.exists():
        made = kept / f"{PREVIOUS}-{os.getpid()}"
        unpack(archived(), made)
        try:
            made.rename(place)
        except OSError:  # another process of these tests was faster
            assert place.exists()
    return place


def archived() -> bytes:
    """The files of that commit; without it the test fails in CI and is skipped elsewhere."""
    command = ["git", "archive", PREVIOUS, "skep"]
    packed = subprocess.run(command, cwd=ROOT, capture_output=True, check=False)
    if packed.returncode:
        absent(NotPermitted(f"this clone has no commit {PREVIOUS}: clone it with its history"))
    return packed.stdout


def unpack(content: bytes, folder: Path) -> None:
    folder.mkdir()
    subprocess.run(["tar", "-x", "-C", str(folder)], input=content, check=True)
    start = folder / "skep" / "__init__.py"
    assert '"0.1.0"' in start.read_text()
    start.write_text(start.read_text().replace('"0.1.0"', f'"{PREVIOUS_VERSION}"'))


class PreviousCode:
    """Runs `python -m skep` out of that folder; a mixin of processes."""

    code: Path

    def _process_options(self) -> dict[str, Any]:
        options: dict[str, Any] = super()._process_options()  # type: ignore[misc]  # SkepProcess
        # The working directory comes before PYTHONPATH for `python -m`.
        return {**options, "env": options["env"] | {"PYTHONPATH": str(self.code)}, "cwd": self.code}


class PreviousCenter(PreviousCode, CenterProcess):
    """`skep center`, with the flags of that version."""

    def _command(self, port: int) -> list[str]:
        place = ["--data", str(self.folder), f"--port={port}"]
        return [self._binary, "-m", "skep", "center", *place]


class PreviousAgent(PreviousCode, AgentProcess):
    """`skep agent`, with the flags and the log line of that version."""

    def _command(self, port: int) -> list[str]:  # noqa: ARG002 - an agent has no port
        place = ["--center", self.url, "--token-file", str(self._token_file)]
        return [self._binary, "-m", "skep", "agent", *place, "--data", str(self.folder)]

    def _answers(self, port: int) -> bool:  # noqa: ARG002 - it tells in its log
        return any("registered at" in line for line in self.said())


def make_center(code: Path | None, folder: Path, env: dict[str, str]) -> CenterProcess:
    """Of the version in that folder; None is this one."""
    if code is None:
        return CenterProcess(folder, env)
    center = PreviousCenter(folder, env)
    center.code = code
    return center


def make_agent(
    code: Path | None, folder: Path, center: CenterProcess, env: Mapping[str, str]
) -> AgentProcess:
    if code is None:
        return AgentProcess(folder, [center.url], center.agent_token, env)
    agent = PreviousAgent(folder, [center.url], center.agent_token, env)
    agent.code = code
    return agent


class Caller:
    """Calls a center as a program of a user does: HTTP and JSON, nothing of this package."""

    def __init__(self, center: CenterProcess) -> None:
        self._url, self._token = center.url, center.admin_token

    async def call(self, method: str, path: str, body: object = None) -> Any:
        content = await self.raw(method, path, body)
        return json.loads(content) if content else None

    async def raw(self, method: str, path: str, body: object = None) -> bytes:
        return await asyncio.to_thread(self._send, method, path, body)

    def _send(self, method: str, path: str, body: object) -> bytes:
        data = None if body is None else json.dumps(body).encode()
        headers = {"Authorization": f"Bearer {self._token}", "Content-Type": "application/json"}
        request = Request(self._url + path, data, headers, method=method)
        try:
            with urlopen(request, timeout=20) as answer:
                return bytes(answer.read())
        except HTTPError as error:
            raise AssertionError(f"{method} {path}: {error.code} {error.read()!r}") from error

    async def open(self, run: str, urls: Sequence[str], **run_settings: object) -> None:
        await self.call("PUT", f"/api/v1/runs/{run}", {"settings": run_settings})
        if urls:
            await self.call("POST", f"/requestqueue/{run}", [{"uri": url} for url in urls])

    async def ledger(self, *, audit: bool = False) -> Counter[str]:
        """It has to add up each time."""
        answer = await self.call("GET", f"/api/v1/ledger?audit={str(audit).lower()}")
        assert answer["unaccounted"] == 0
        return Counter(answer["ledger"])

    async def settled_ledger(self) -> Counter[str]:
        """The running counts, which the rows agree with. The center packs what waits into its
        lanes after its start, so the two are compared until both calls saw the same moment."""
        deadline = time.monotonic() + 20
        while (counts := await self.ledger()) != (rows := await self.ledger(audit=True)):
            assert time.monotonic() < deadline, f"the counts {counts} and the rows {rows} differ"
            await asyncio.sleep(STEP)
        return counts

    async def until(
        self, condition: Callable[[Counter[str]], bool], seconds: float = 30.0
    ) -> Counter[str]:
        deadline = time.monotonic() + seconds
        while not condition(ledger := await self.ledger()):
            assert time.monotonic() < deadline, f"after {seconds} s: {dict(ledger)}"
            await asyncio.sleep(STEP)
        return ledger

    async def states(self) -> dict[str, str]:
        answer = await self.call("GET", "/api/v1/runs")
        return {run["id"]: run["state"] for run in answer["items"]}


def open_requests(ledger: Counter[str]) -> int:
    return sum(ledger[state] for state in ("waiting", "queued", "leased", "delayed"))


def skep(code: Path | None, center: CenterProcess, *words: str) -> str:
    """A command of that version, on that center; what it prints."""
    done: subprocess.CompletedProcess[str] = subprocess.run(
        **started(code, center, *words), capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, f"{words}: {done.returncode}\n{done.stdout}{done.stderr}"
    return done.stdout


def started(code: Path | None, center: CenterProcess, *words: str) -> dict[str, Any]:
    """The same for `subprocess.Popen`."""
    env = {name: value for name, value in os.environ.items() if not name.startswith("SKEP_")}
    env |= {"SKEP_CENTER": center.url, "SKEP_TOKEN_FILE": str(center.folder / "admin.token")}
    folder = code or ROOT
    command = [sys.executable, "-m", "skep", *words]
    return {"args": command, "cwd": folder, "env": env | {"PYTHONPATH": str(folder)}}


@asynccontextmanager
async def running(*processes: CenterProcess | AgentProcess) -> AsyncIterator[None]:
    with ExitStack() as stack:
        for process in processes:
            stack.callback(process.kill)
            await asyncio.to_thread(process.start)
        yield


@pytest.fixture
async def site() -> AsyncIterator[DemoSite]:
    async with DemoSite(PAGES, LATENCY) as site:
        yield site


def reports(agent: AgentProcess) -> dict[str, int]:
    """Files of its outbox that were not sent, with the number of results in each."""
    return {
        file.name: results_in(file.read_bytes())
        for file in (agent.folder / "agent" / "outbox").glob("*.report")
    }


def results_in(data: bytes) -> int:
    """As the previous version wrote it: magic, length of the index, checksum; the index."""
    magic, length, _ = struct.unpack_from(">4sII", data)
    assert magic == b"SKO1"
    return int(msgspec.msgpack.decode(data[12 : 12 + length])[1])


async def fill(caller: Caller, center: CenterProcess, site: DemoSite, folder: Path) -> None:
    """Jobs, and runs that ended in each way; all with commands and calls of that version."""
    pages = site.page_urls()
    jobs = folder / "jobs.yaml"
    jobs.write_text(JOBS.format(url=site.url))
    assert isinstance(center, PreviousCenter)
    await asyncio.to_thread(skep, center.code, center, "job", "apply", str(jobs))
    await caller.open("stopped", pages[40:44])
    await caller.call("POST", "/api/v1/runs/stopped/cancel")
    await caller.open("resting", pages[44:52])
    await caller.call("POST", "/api/v1/runs/resting/pause")
    driving = await caller.call("POST", "/requestqueue/broken/driver", {})
    last = {"driver": driving["driver"], "state": "failed", "reason": "it broke"}
    await caller.call("POST", "/requestqueue/broken/end", last)
    await caller.call("PUT", "/api/v1/runs/ended", {"settings": {}})
    short = [{"uri": pages[59], "expires_in": 0.001}]
    await caller.call("POST", "/requestqueue/ended", short)


async def work(caller: Caller, center: CenterProcess, site: DemoSite) -> None:
    """With an agent: some requests end, one fails and waits for its retry, many are under way."""
    pages = site.page_urls()
    await caller.open("ended", [*pages[52:56], f"{site.url}/status/404"], retries=0)
    ends = {"done": 4, "dead": 1, "expired": 1}
    await caller.until(lambda ledger: ends.items() <= ledger.items())
    await caller.call("POST", "/api/v1/runs/ended/finish")
    await caller.open("later", [f"{site.url}/status/500"], retries=1, backoff_first=14)
    await caller.until(lambda ledger: ledger["delayed"] == 1)
    await caller.open("web", pages[:40], block_size=4)
    await caller.call("POST", "/api/v1/jobs/listed/run", {})


def is_in_the_middle(ledger: Counter[str]) -> bool:
    wanted = ("waiting", "queued", "leased", "delayed", "dead", "cancelled", "expired")
    return ledger["done"] > 8 and all(ledger[state] for state in wanted)


async def leave_behind(center: CenterProcess, site: DemoSite, folder: Path) -> AgentProcess:
    """Run the previous version, kill its center, then its agent once that has unsent reports."""
    assert isinstance(center, PreviousCenter)
    async with running(center):
        caller = Caller(center)
        await fill(caller, center, site, folder)
        agent = make_agent(center.code, folder / "a", center, center.env)
        async with running(agent):
            await work(caller, center, site)
            await caller.until(is_in_the_middle)
            states = await caller.states()
            assert {run: states[run] for run in STATES} == STATES
            versions = await caller.call("GET", "/api/v1/agents")
            registration = versions["items"][0]["agent"]["registration"]
            assert registration["version"] == PREVIOUS_VERSION
            await asyncio.to_thread(center.kill)
            deadline = time.monotonic() + 15
            while not sum(reports(agent).values()):
                assert time.monotonic() < deadline, "the agent kept no report"
                await asyncio.sleep(STEP)
            await asyncio.to_thread(agent.kill)
    return agent


@pytest.fixture(params=["sqlite", "postgresql", "mariadb"])
def places(request: pytest.FixtureRequest) -> dict[str, str]:
    """Settings of a center: SQLite and lanes in memory, or a server and lanes in Redis."""
    if request.param == "sqlite":
        return {}
    name = {"postgresql": "postgres_server", "mariadb": "mariadb_server"}[request.param]
    database: Database = request.getfixturevalue(name)
    return {
        "SKEP_STORE_URL": database.fresh_database(),
        "SKEP_BUS_URL": request.getfixturevalue("redis_url"),
    }


#: Stands for the number of blocks in Redis where lanes are in memory.
NO_REDIS = 10**6


def in_lanes(places: dict[str, str]) -> int:
    """Blocks in Redis, under the key of the previous version."""
    if "SKEP_BUS_URL" not in places:
        return NO_REDIS
    with Redis.from_url(places["SKEP_BUS_URL"]) as redis:
        return int(redis.hlen("skep:{lanes}:blocks"))


async def test_work_goes_on_from_what_the_previous_version_left(
    tmp_path: Path, previous: Path, places: dict[str, str], site: DemoSite
) -> None:
    """The house: a data folder, an archive, an agent's folder with unsent reports and lanes in
    Redis, all of the commit before: opened, everything ends, and the ledger adds up."""
    old = make_center(previous, tmp_path / "center", PATIENT | SLOW | places)
    old_agent = await leave_behind(old, site, tmp_path)
    assert in_lanes(places) > 0
    unsent, hits = sum(reports(old_agent).values()), Counter(site.hits)

    new = make_center(None, tmp_path / "center", PATIENT | places)
    new.port = old.port
    async with running(new):
        caller = Caller(new)
        opened = await caller.settled_ledger()
        states = await caller.states()
        assert {run: states[run] for run in STATES} == STATES
        agent = make_agent(None, tmp_path / "a", new, {})
        async with running(agent):
            await caller.call("POST", "/api/v1/runs/resting/continue")
            ended = await caller.until(lambda ledger: not open_requests(ledger), 40)
            assert ended == await caller.ledger(audit=True), "nothing moves any more"
            assert not reports(agent), "the reports were sent"
        await check_results(caller, new, ended)
    assert in_lanes(places) in {0, NO_REDIS}, "blocks of the previous version stay in the lanes"
    lost_downloads = reported_pages(hits) - opened["done"] - unsent
    repeated = reported_pages(site.hits) - len(pages_hit(site.hits))
    assert repeated <= lost_downloads, "what an unsent report held was downloaded again"
    assert doubled_rows(new.store_url.replace("mysql://", "mysql+pymysql://")) == 0


def pages_hit(hits: Counter[str]) -> set[str]:
    return {path for path in hits if path.startswith("/page/")}


def reported_pages(hits: Counter[str]) -> int:
    return sum(hits[path] for path in pages_hit(hits))


async def check_results(caller: Caller, center: CenterProcess, ended: Counter[str]) -> None:
    """Every request has its end, bodies can be read, jobs are there."""
    ways = {state: ended[state] for state in ("accepted", "done", "dead", "cancelled", "expired")}
    # 4 and 40 and 8 pages, 2 of a job; statuses 404 and 500; 4 cancelled, 1 expired.
    assert ways == {"accepted": 61, "done": 54, "dead": 2, "cancelled": 4, "expired": 1}
    done = await caller.call("GET", "/requestqueue/web?limit=100")
    found = [one for block in done["blocks"] for one in block["requests"]]
    assert Counter(one["state"] for one in found) == {"done": 40}
    assert len({one["uri"] for one in found}) == 40
    content = Pages(PAGES, seed=1)
    for one in found[:: len(found) // 8]:
        body = await caller.raw("GET", f"/api/v1/requests/{one['id']}/body")
        assert body == content.page(int(one["uri"].rpartition("/")[2])).encode()
    listed = json.loads(await asyncio.to_thread(skep, None, center, "job", "ls", "--json"))
    assert {"listed", "nightly"} <= set(json.dumps(listed).split('"'))
    assert "finished" in {
        state for run, state in (await caller.states()).items() if run not in STATES
    }


@contextmanager
def interrupted(options: dict[str, Any], log: Path) -> Iterator[None]:
    """A command that is killed at the end of the block."""
    with log.open("wb") as output, subprocess.Popen(**options, stdout=output, stderr=output) as one:
        try:
            yield
        finally:
            one.send_signal(signal.SIGKILL)


@pytest.mark.parametrize("center_is", ["previous", "new"])
async def test_agent_and_commands_of_the_other_version(
    tmp_path: Path, previous: Path, site: DemoSite, center_is: str
) -> None:
    """The house: an agent and a command line of the commit before on a new center, and the other
    way round. A spider that is killed is resumed by the command line of the other version."""
    theirs, ours = (previous, None) if center_is == "previous" else (None, previous)
    center = make_center(theirs, tmp_path / "center", {})
    async with running(center), running(make_agent(ours, tmp_path / "a", center, {})):
        caller = Caller(center)
        await use_commands(ours, center, site, tmp_path)
        await crawl(ours, theirs, caller, center, site, tmp_path)
        ledger = await caller.ledger(audit=True)
        assert ledger == await caller.ledger()
        assert open_requests(ledger) == 0
        agents = await caller.call("GET", "/api/v1/agents")
    version = agents["items"][0]["agent"]["registration"]["version"]
    assert (version == PREVIOUS_VERSION) is (ours is previous)


async def use_commands(
    code: Path | None, center: CenterProcess, site: DemoSite, folder: Path
) -> None:
    jobs, urls = folder / "jobs.yaml", folder / "urls"
    jobs.write_text(JOBS.format(url=site.url))
    urls.write_text("\n".join(site.page_urls()[:20]))
    lines: list[tuple[str, ...]] = [
        ("job", "apply", str(jobs)),
        ("job", "run", "listed", "--wait"),
        ("submit", "web", str(urls), "--new", "--finish", "--timeout", "30"),
    ]
    for words in lines:
        await asyncio.to_thread(skep, code, center, *words)
    views = [("runs", "show", "web"), ("agents",), ("info",), ("failures",), ("sites",)]
    shown = await asyncio.gather(
        *(asyncio.to_thread(skep, code, center, *words, "--json") for words in views)
    )
    assert all(json.loads(text) for text in shown)
    assert '"finished"' in shown[0]


async def crawl(
    first: Path | None,
    second: Path | None,
    caller: Caller,
    center: CenterProcess,
    site: DemoSite,
    folder: Path,
) -> None:
    """One version begins a run of a spider and is killed; the other one finishes it."""
    before = (await caller.ledger())["done"]
    spider = str(ROOT / "examples" / "demo_pages.py")
    words = ["run", spider, "-a", f"start_urls={site.url}/", "-s", "host_concurrency=4"]
    options = started(first, center, *words, "--run", "crawl")
    with interrupted(options, folder / "crawl.log"):
        await caller.until(lambda ledger: ledger["done"] > before + 5)
    await asyncio.to_thread(skep, second, center, *words, "--resume", "crawl")
    items = await caller.call("GET", "/api/v1/runs/crawl/items?limit=1000")
    urls = Counter(item["data"]["url"] for item in items["items"])
    assert len(urls) > 40
    assert set(urls.values()) == {1}


WRITE_SETTINGS = """
import json, sys
from skep.settings import Settings, documented
import msgspec
rooms = {}
for room, field, default, _ in documented():
    rooms.setdefault(room, {})[field] = msgspec.to_builtins(default)
for room, fields in rooms.items():
    print(f"[{room}]")
    for field, value in fields.items():
        print(f"{field} = {json.dumps(value)}")
"""


def test_a_configuration_file_with_every_setting(tmp_path: Path, previous: Path) -> None:
    """The house: a file that names every setting of the commit before, by its old name."""
    env = {**os.environ, "PYTHONPATH": str(previous)}
    text = subprocess.run(
        [sys.executable, "-c", WRITE_SETTINGS],
        cwd=previous,
        env=env,
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    file = tmp_path / "skep.toml"
    file.write_text(text)
    assert sum(map(len, tomllib.loads(text).values())) > 100
    assert settings.load(file) == settings.Settings()
