"""A run stays who it is: cookies and sessions outlive its downloader and its agent."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from random import Random
from typing import Any

import pytest

from skep.agent.app import Agent
from skep.agent.work.run_downloaders import RunDownloaders
from skep.agent.work.run_session_files import RunSessionFiles
from skep.downloaders.egress_policy import EgressPolicy
from skep.downloaders.http import HttpKind
from skep.downloaders.proxies import ProxyPool, parse_proxy
from skep.downloaders.registry import kinds as real_kinds
from skep.downloaders.session_state import SessionIdentity, SessionState
from skep.downloaders.sessions import SessionPool
from skep.model.proxies import ExitRules
from skep.model.request import Work
from skep.model.run import RunSettings
from skep.runtime.clock import SystemClock
from skep.settings import AgentSettings, EgressSettings
from skep.testing.doubles.center import CenterDouble, center_double
from skep.testing.doubles.toy_agent import running_agent
from skep.testing.polling import until
from skep.testing.servers.hostile_http import Asked, HostileConnection, HostileServer, answer, fetch
from skep.wire.messages import Command

LOOPBACK = ("127.0.0.0/8",)
QUICK = AgentSettings(report_every=0.05, lease_wait=1.0, drain_seconds=1.0, idle_close=0.2)


class Visits:
    """A site that gives a number to each visitor who has none."""

    def __init__(self) -> None:
        self.seen: list[str] = []

    async def __call__(self, asked: Asked, line: HostileConnection) -> None:
        who = asked.headers.get("cookie", "")
        self.seen.append(who or f"new {len(self.seen)}")
        given = [] if who else [("Set-Cookie", f"id={len(self.seen)}; Path=/")]
        await line.send(answer(b"page", headers=given))


class Ground:
    def __init__(self, site: HostileServer, visits: Visits, folder: Path) -> None:
        self.site = site
        self.visits = visits
        self._folder = folder
        self.open: list[RunDownloaders] = []
        (folder / "runs").mkdir()

    def agent(
        self, known: frozenset[str] = frozenset({"run"})
    ) -> tuple[RunDownloaders, RunSessionFiles]:
        """The part of an agent that downloads, as after its start."""
        session_files = RunSessionFiles(self._folder, known.__contains__)
        session_files.open()
        session_files.unlock(b"k" * 32)
        kind = HttpKind(SystemClock(), Random(1), EgressPolicy(allow=LOOPBACK))
        self.open.append(RunDownloaders({"http": kind}, SystemClock().monotonic, session_files))
        return self.open[-1], session_files

    async def visit(self, downloaders: RunDownloaders, session: str = "", **settings: Any) -> str:
        """Whom the site saw."""
        downloader = downloaders.of("run", RunSettings(**settings))
        fetched = await fetch(downloader, Work(1, self.site.url("/"), session=session))
        assert fetched.outcome.status == 200, fetched.outcome
        return self.visits.seen[-1]


@pytest.fixture
async def ground(tmp_path: Path) -> AsyncIterator[Ground]:
    visits = Visits()
    async with HostileServer({"/": visits}) as site:
        made = Ground(site, visits, tmp_path)
        yield made
        for downloaders in made.open:
            await downloaders.close_all()


@pytest.mark.parametrize("settings", [{}, {"sessions": 1}, {"exits": ExitRules()}])
async def test_a_run_that_rested_is_recognised(ground: Ground, settings: Any) -> None:
    """A3, C6: an idle downloader is closed, and the next one has its cookies."""
    downloaders, _ = ground.agent()
    assert await ground.visit(downloaders, **settings) == "new 0"
    for _ in range(2):
        assert await downloaders.close_idle(0.0) == 1
        assert await ground.visit(downloaders, **settings) == "id=1"


async def test_named_sessions_stay_apart(ground: Ground) -> None:
    """A3: each name keeps its own cookies, and requests without a name have others."""
    downloaders, _ = ground.agent()
    names = ("anna", "bert", "")
    first = [await ground.visit(downloaders, name) for name in names]
    assert first == ["new 0", "new 1", "new 2"]
    await downloaders.close_idle(0.0)
    assert await ground.visit(downloaders) == "id=3"
    await downloaders.close_idle(0.0)  # in between no request named a session
    again = [await ground.visit(downloaders, name) for name in names]
    assert again == ["id=1", "id=2", "id=3"]


async def test_a_killed_agent_comes_back_as_who_it_was(ground: Ground) -> None:
    """A4, C6: from the last look, which is some seconds old; nothing is closed before."""
    downloaders, session_files = ground.agent()
    await ground.visit(downloaders)
    await downloaders.note()
    session_files.save()
    after, _ = ground.agent()
    assert await ground.visit(after) == "id=1"
    stranger, _ = ground.agent(frozenset())
    assert await ground.visit(stranger) == "new 2", "a run that is over leaves nothing"


async def test_a_torn_file_is_forgotten(ground: Ground, tmp_path: Path) -> None:
    """A4: and so is one without a run."""
    (tmp_path / "runs" / f"{b'run'.hex()}.jar").write_bytes(b"\xc1 torn")
    (tmp_path / "runs" / "nonsense.jar").write_bytes(b"x")
    downloaders, session_files = ground.agent()
    assert session_files.of("run") is None
    assert await ground.visit(downloaders) == "new 0"
    assert not (tmp_path / "runs" / "nonsense.jar").exists()


def test_a_jar_that_a_site_has_filled_is_not_kept(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A4: nor does it replace a smaller one; it is said once."""
    (tmp_path / "runs").mkdir()
    session_files = RunSessionFiles(tmp_path, lambda _: True)
    session_files.unlock(b"k" * 32)
    small, large = SessionState(["x"]), SessionState(["x" * 5000] * 300)
    for each in (small, large, large):
        session_files.keep("run", each)
    session_files.save()
    assert session_files.of("run") == small
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert sum(path.stat().st_size for path in (tmp_path / "runs").iterdir()) < 100


async def test_a_downloader_that_ends_before_it_began_loses_nothing(ground: Ground) -> None:
    """A3: what it was given is what it leaves."""
    kind = HttpKind(SystemClock(), Random(1), EgressPolicy(allow=LOOPBACK))
    given = SessionState(
        ["127.0.0.1\tFALSE\t/\tFALSE\t0\tid\t7"], [SessionIdentity("anna", 0, ["x"], {"A": "b"})]
    )
    for _ in range(20):
        downloader = kind.open("run", RunSettings())
        downloader.inherit(given)
        await downloader.close()
        assert downloader.session_state == given


def test_exits_stay_with_their_sessions() -> None:
    """C6, A6: a restored session uses the proxy that it had, however proxies are shuffled."""
    proxies = [parse_proxy(f"http://u{n}:p@127.0.0.1:3128") for n in range(20)]
    for seed in range(5):
        exits = ProxyPool(proxies, 60.0, Random(seed))
        pool = SessionPool(ExitRules(), None, exits, Random(seed))
        for identity in (
            SessionIdentity("", 5, [], {}),
            SessionIdentity("anna", 13, [], {}, uses=3),
        ):
            pool.restore(identity)
        pool.restore(SessionIdentity("bert", 20, [], {}))  # of a proxy that is not there any more
        anna, plain, bert = (pool.take(name, 0.0) for name in ("anna", "", "bert"))
        assert anna is not None
        assert plain is not None
        assert bert is not None
        assert (anna.exit.proxy, anna.uses) == (proxies[13], 4)
        assert plain.exit.proxy == proxies[5]


async def test_an_agent_keeps_them_until_the_run_is_released(
    ground: Ground, tmp_path: Path
) -> None:
    """A3, A4: over a rest and over a restart of the agent; a released run is forgotten."""
    kinds = real_kinds(SystemClock(), Random(3), EgressSettings(allow=LOOPBACK))
    jar = tmp_path / "a" / "runs" / f"{b'web'.hex()}.jar"

    async def one_page(center: CenterDouble, number: int) -> str:
        center.add("web", [Work(number, ground.site.url("/"))], RunSettings(robots=False))
        await center.until(lambda: center.open_requests == 0)
        return ground.visits.seen[-1]

    async with center_double() as center:
        begin = [center.url], center.token, tmp_path / "a", kinds, QUICK
        async with running_agent(*begin) as agent:
            assert await one_page(center, 1) == "new 0"
            await until(lambda: not len(agent.downloaders))
            assert await one_page(center, 2) == "id=1"
        assert jar.exists()
        async with running_agent(*begin) as agent:
            assert await one_page(center, 3) == "id=1"
            await _released(agent, "web")
            assert not jar.exists()
            assert await one_page(center, 4) == "new 3"


async def _released(agent: Agent, run: str) -> None:
    async with asyncio.timeout(10):
        await agent.execute(Command("release", run))
