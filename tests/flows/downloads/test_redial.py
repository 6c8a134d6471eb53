"""The agent's line dialled again (A6): a real command, a real agent, a center's double."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any

import pytest

from skep.downloaders.registry import kinds as real_kinds
from skep.model.proxies import ExitRules
from skep.model.request import Work
from skep.model.run import RunSettings
from skep.runtime.clock import SystemClock
from skep.settings import AgentSettings, EgressSettings
from skep.testing.doubles.center import CenterDouble, center_double
from skep.testing.doubles.toy_agent import running_agent
from skep.testing.polling import until
from skep.testing.servers.hostile_http import Asked, HostileConnection, HostileServer, answer, says

ASKS = ExitRules(redial=True, switch_when="^HTTP 429")


class Ground:
    """A site that refuses this address until a redial, and an agent."""

    def __init__(self, center: CenterDouble, site: HostileServer, folder: Path) -> None:
        self.center = center
        self.site = site
        self.folder = folder
        self.dialled = folder / "dialled"
        site.routes["/wall"] = self._wall

    async def _wall(self, _asked: Asked, line: HostileConnection) -> None:
        status = 200 if self.dialled.exists() else 429
        await line.send(answer(b"a page", status))

    def agent(self, code: str, **more: Any) -> Any:
        """`code` is Python, run by the redial command."""
        command = (sys.executable, "-S", "-c", code, str(self.dialled))
        chosen = {"redial": command, "redial_every": 0.0, "drain_seconds": 1.0, **more}
        settings = AgentSettings(concurrency=8, report_every=0.05, lease_wait=1.0, **chosen)
        kinds = real_kinds(SystemClock(), Random(3), EgressSettings(allow=("127.0.0.0/8",)))
        center = self.center
        return running_agent([center.url], center.token, self.folder, kinds, settings)

    def add(self, run: str, *paths: str, exits: ExitRules | None = None) -> None:
        first = 100 * len(self.center.blocks)
        works = [Work(first + n, self.site.url(path)) for n, path in enumerate(paths)]
        self.center.add(run, works, RunSettings(exits=exits, robots=False, time_limit=10.0))

    def results(self) -> list[tuple[str, int]]:
        return sorted((one.failure, one.status) for one in self.center.outcomes())


@pytest.fixture
async def ground(tmp_path: Path) -> AsyncIterator[Ground]:
    async with center_double() as center, HostileServer({"/page": says(b"a page")}) as site:
        yield Ground(center, site, tmp_path)


DIAL = "import pathlib, sys; pathlib.Path(sys.argv[1]).touch()"


async def test_the_request_that_met_the_pattern_is_tried_again_after_the_call(
    ground: Ground,
) -> None:
    """A6: one call for all who wait; the figures tell of it."""
    ground.add("r", *["/wall"] * 5, exits=ASKS)
    async with ground.agent(DIAL) as agent:
        await ground.center.until(lambda: ground.center.open_requests == 0)
        assert agent.redialer.count == 1
        vitals = agent.vitals()
    assert ground.results() == [("", 200)] * 5
    assert (vitals.redials, vitals.switches) == (1, 1)


async def test_running_downloads_end_first_and_nothing_starts_meanwhile(ground: Ground) -> None:
    """A6: the drain is the whole agent's, runs that did not ask included."""
    released = ground.folder / "released"

    async def slow(_asked: Asked, line: HostileConnection) -> None:
        await until(released.exists)
        await line.send(answer(b"whole"))

    ground.site.routes["/slow"] = slow
    ground.add("other", "/slow")
    async with ground.agent(DIAL) as agent:
        await until(lambda: ground.site.paths() == ["/slow"])
        ground.add("r", "/wall", exits=ASKS)
        await until(lambda: agent.downloaders.held)
        ground.add("other", "/page")
        await until(lambda: agent.holding.queued + agent.holding.active >= 2)
        assert not ground.dialled.exists()
        released.touch()
        await ground.center.until(lambda: ground.center.open_requests == 0)
    assert ground.results() == [("", 200)] * 3
    assert ground.site.paths()[:2] == ["/slow", "/wall"]
    assert sorted(ground.site.paths()[2:]) == ["/page", "/wall"]


async def test_the_drain_is_bounded(ground: Ground) -> None:
    """A6: who does not end in time is cut off, and says so."""

    async def endless(_asked: Asked, line: HostileConnection) -> None:
        await line.reader.read()

    ground.site.routes["/endless"] = endless
    ground.add("other", "/endless")
    async with ground.agent(DIAL, redial_drain=0.1):
        await until(lambda: ground.site.paths() == ["/endless"])
        ground.add("r", "/wall", exits=ASKS)
        await ground.center.until(lambda: ground.center.open_requests == 0)
    assert ground.results() == [("", 200), ("network", 0)]
    assert "the connection was redialled" in {one.detail for one in ground.center.outcomes()}


async def test_beats_go_on_while_the_line_is_dialled(ground: Ground) -> None:
    """A6, C3: leases are renewed by every beat, however long the command takes."""
    go = ground.folder / "go"
    wait = (
        f"import os, pathlib, sys, time\nwhile not os.path.exists({str(go)!r}): time.sleep(.01)\n"
    )
    ground.add("r", "/wall", exits=ASKS)
    async with ground.agent(wait + DIAL) as agent:
        await until(lambda: agent.downloaders.held and not agent.downloaders.open_connections)
        before = agent.heartbeats.beats
        await until(lambda: agent.heartbeats.beats >= before + 5)
        assert agent.holding.held()
        go.touch()
        await ground.center.until(lambda: ground.center.open_requests == 0)
    assert ground.results() == [("", 200)]


@pytest.mark.parametrize(
    ("code", "more", "said"),
    [
        ("raise SystemExit(3)", {}, "ended with exit code 3"),
        ("import time; time.sleep(60)", {"redial_seconds": 0.3}, "took more than 0.3 s"),
        ("", {"redial": ("/no/such/command",)}, "could not be started"),
    ],
    ids=["fails", "hangs", "missing"],
)
async def test_a_command_that_does_not_work(
    ground: Ground, code: str, more: dict[str, Any], said: str
) -> None:
    """A6: the requests end as `blocked` with the reason; the agent goes on."""
    ground.add("r", "/wall", exits=ASKS)
    async with ground.agent(code, **more):
        await ground.center.until(lambda: ground.center.open_requests == 0)
        ground.add("other", "/page")
        await ground.center.until(lambda: ground.center.open_requests == 0)
    assert ground.results() == [("", 200), ("blocked", 0)]
    assert any(said in one.detail for one in ground.center.outcomes())


async def test_a_redial_after_a_number_of_requests(ground: Ground) -> None:
    """A6: by count; each call is one line of the file."""
    count = "import sys; open(sys.argv[1], 'a').write('x')"
    rules = ExitRules(redial=True, switch_after=3)
    ground.add("r", *["/page"] * 9, exits=rules)
    async with ground.agent(count) as agent:
        await ground.center.until(lambda: ground.center.open_requests == 0)
        assert agent.redialer.count == 2
    assert ground.dialled.read_text() == "xx"
    assert ground.results() == [("", 200)] * 9


async def test_calls_keep_their_distance(ground: Ground) -> None:
    """A6: whatever runs ask for, the operator says how often the line may be dialled."""
    stamp = "import sys, time; open(sys.argv[1], 'a').write(f'{time.monotonic()} ')"
    ground.add("r", *["/page"] * 4, exits=ExitRules(redial=True, switch_after=1))
    async with ground.agent(stamp, redial_every=0.3):
        await ground.center.until(lambda: ground.center.open_requests == 0)
    times = [float(text) for text in ground.dialled.read_text().split()]
    assert len(times) == 3
    assert min(later - sooner for sooner, later in pairwise(times)) >= 0.3
