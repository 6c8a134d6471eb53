"""Sessions: cookies, connections, proxy and headers as one identity, on real servers."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import AsyncIterator
from pathlib import Path
from random import Random
from typing import Any

import pytest

from skep.downloaders.egress_policy import EgressPolicy
from skep.downloaders.http import HttpDownloader, HttpKind
from skep.model.proxies import ExitRules, SessionRules
from skep.model.request import Work
from skep.model.run import RunSettings
from skep.runtime.clock import SystemClock
from skep.spiders.authoring.request import Request
from skep.spiders.driving.request_meta import opened, sealed
from skep.spiders.ports import Page
from skep.testing import servers
from skep.testing.grounds.centers import running_center, works_of
from skep.testing.servers.hostile_http import (
    Asked,
    HostileConnection,
    HostileServer,
    answer,
    fetch,
    fetch_all,
    says,
)
from skep.wire.messages import LeaseAsk, LeaseReply

LOOPBACK = ("127.0.0.0/8",)


def open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


class Visitors:
    """A site that gives a number to each visitor who has none, and counts what it sees."""

    def __init__(self) -> None:
        self.count = 0
        #: Visitor -> connections that it came by.
        self.lines: defaultdict[str, set[int]] = defaultdict(set)
        self.visits: list[str] = []
        self.agents: defaultdict[str, set[str]] = defaultdict(set)
        self.blocked: set[str] = set()

    async def __call__(self, asked: Asked, line: HostileConnection) -> None:
        who = asked.headers.get("cookie", "")
        headers = []
        if not who:
            self.count += 1
            who = f"id={self.count}"
            headers = [("Set-Cookie", f"{who}; Path=/")]
        self.visits.append(who)
        self.lines[who].add(line.number)
        self.agents[who].add(asked.headers.get("user-agent", ""))
        status = 403 if who in self.blocked else 200
        await line.send(answer(who.encode(), status, headers))


class Ground:
    def __init__(self, site: HostileServer, visitors: Visitors) -> None:
        self.site = site
        self.visitors = visitors
        self.opened: list[HttpDownloader] = []
        self.kind = HttpKind(SystemClock(), Random(1), EgressPolicy(allow=LOOPBACK))

    def open(self, sessions: Any = None, **more: Any) -> HttpDownloader:
        settings = RunSettings(time_limit=5.0, sessions=sessions, **more)
        self.opened.append(self.kind.open("run", settings))
        return self.opened[-1]

    def work(self, number: int, session: str = "") -> Work:
        return Work(number, self.site.url("/"), session=session)

    async def one_by_one(self, downloader: HttpDownloader, *sessions: str) -> list[str]:
        """Failure classes, or who the site saw."""
        seen = []
        for number, session in enumerate(sessions):
            fetched = await fetch(downloader, self.work(number, session))
            seen.append(fetched.outcome.failure or self.visitors.visits[-1])
        return seen


@pytest.fixture
async def ground() -> AsyncIterator[Ground]:
    visitors = Visitors()
    async with HostileServer({"/": visitors}) as site:
        made = Ground(site, visitors)
        yield made
        for downloader in made.opened:
            await downloader.close()


async def test_sessions_take_turns_and_share_neither_cookies_nor_connections(
    ground: Ground,
) -> None:
    """`sessions: 3` is three visitors, each with connections of its own."""
    downloader = ground.open(3)
    seen = await ground.one_by_one(downloader, *[""] * 9)
    assert seen == ["id=1", "id=2", "id=3"] * 3
    lines = ground.visitors.lines
    assert [len(one) for one in lines.values()] == [1, 1, 1]
    assert len(set.union(*lines.values())) == 3


async def test_many_at_once_stay_apart(ground: Ground) -> None:
    """No connection ever carries two identities, whatever runs beside."""
    downloader = ground.open(4, host_concurrency=32)
    await ground.one_by_one(downloader, *[""] * 4)
    await fetch_all(downloader, [ground.work(n) for n in range(200)])
    owners: defaultdict[int, set[str]] = defaultdict(set)
    for who, lines in ground.visitors.lines.items():
        for line in lines:
            owners[line].add(who)
    assert len(ground.visitors.visits) == 204
    assert ground.visitors.count == 4
    assert all(len(who) == 1 for who in owners.values())


async def test_a_request_may_name_its_session(ground: Ground) -> None:
    """Sticky by name, with or without rules; requests without a name are another visitor."""
    for sessions in (None, SessionRules(count=1)):
        ground.visitors.count = 0
        downloader = ground.open(sessions)
        seen = await ground.one_by_one(downloader, "alice", "bob", "alice", "", "bob", "", "alice")
        assert seen == ["id=1", "id=2", "id=1", "id=3", "id=2", "id=3", "id=1"]


async def test_a_blocked_session_is_replaced_and_the_request_tried_again(ground: Ground) -> None:
    """The block is the session's, not the request's."""
    downloader = ground.open(SessionRules(count=1))
    assert await ground.one_by_one(downloader, "", "") == ["id=1", "id=1"]
    ground.visitors.blocked = {"id=1"}
    assert await ground.one_by_one(downloader, "", "") == ["id=2", "id=2"]
    assert ground.visitors.visits == ["id=1", "id=1", "id=1", "id=2", "id=2"]
    assert ground.kind.tally.counts.blocked == 1


async def test_a_block_that_stays_is_a_failure_of_its_own_class(ground: Ground) -> None:
    """`blocked`, not `status`, after a number of fresh sessions."""
    ground.visitors.blocked = {f"id={n}" for n in range(100)}
    downloader = ground.open(SessionRules(tries=3))
    fetched = await fetch(downloader, ground.work(1))
    assert (fetched.outcome.failure, fetched.outcome.status) == ("blocked", 403)
    assert "status 403 (3 tries)" in fetched.outcome.detail
    assert len(ground.visitors.visits) == 3
    assert fetched.frames


async def test_blocks_by_pattern_and_other_statuses(ground: Ground) -> None:
    """What counts as a block is the run's to say; accepted statuses are none."""
    ground.site.routes["/wall"] = says(b"<b>Captcha</b>")
    wall = Work(1, ground.site.url("/wall"))
    downloader = ground.open(SessionRules(blocked_when="(?i)captcha", tries=2))
    assert (await fetch(downloader, wall)).outcome.failure == "blocked"
    ground.visitors.blocked = {"id=1"}
    fine = ground.open(SessionRules(), accept_status=(403,))
    assert (await fetch(fine, ground.work(2))).outcome.failure == ""
    lenient = ground.open(SessionRules(blocked_status=(429,)))
    ground.visitors.blocked = {"id=2"}
    assert (await fetch(lenient, ground.work(3))).outcome.failure == "status"


async def test_a_session_ends_after_its_uses(ground: Ground) -> None:
    """`uses`; the site does not know its successor."""
    downloader = ground.open(SessionRules(uses=2))
    seen = await ground.one_by_one(downloader, *[""] * 5)
    assert seen == ["id=1", "id=1", "id=2", "id=2", "id=3"]


async def test_headers_belong_to_the_session(ground: Ground) -> None:
    """Each session keeps the headers that it began with; a request's own still win."""
    sets = ({"User-Agent": "one"}, {"User-Agent": "two"})
    downloader = ground.open(SessionRules(count=2, headers=sets), headers={"User-Agent": "run"})
    await ground.one_by_one(downloader, *[""] * 6)
    assert sorted(map(sorted, ground.visitors.agents.values())) == [["one"], ["two"]]
    own = Work(9, ground.site.url("/"), headers={"User-Agent": "mine"})
    await fetch(downloader, own)
    assert any("mine" in agents for agents in ground.visitors.agents.values())


async def test_a_session_keeps_its_proxy_and_ends_with_it(ground: Ground) -> None:
    """A dead proxy takes its sessions with it; their names go on by another proxy."""
    with servers.tinyproxy() as one, servers.microsocks() as other:
        rules = ExitRules(proxies=(one.url, other.url))
        downloader = ground.open(SessionRules(count=2), exits=rules)
        await ground.one_by_one(downloader, *["alice", "bob"] * 3)
        ways = ["via" in asked.headers for asked in ground.site.asked]
        assert ways in ([True, False] * 3, [False, True] * 3)
        assert ground.visitors.visits == ["id=1", "id=2"] * 3
        one.kill()
        seen = await ground.one_by_one(downloader, "alice", "bob")
        assert ["via" in asked.headers for asked in ground.site.asked[6:]] == [False, False]
        # The session with the dead proxy is replaced, the other one stays.
        assert sorted(seen) == sorted(["id=3", "id=2" if ways[0] else "id=1"])
        assert ground.kind.tally.counts.rested == 1


async def test_a_redirect_stays_in_its_session(ground: Ground) -> None:
    """All hops of a request are one visitor."""
    ground.site.routes["/door"] = says(b"", 302, [("Location", "/")])
    downloader = ground.open(2)
    await ground.one_by_one(downloader, "", "")
    for number in range(4):
        await fetch(downloader, Work(number, ground.site.url("/door")))
    assert ground.visitors.visits == ["id=1", "id=2"] * 3
    assert ground.visitors.count == 2


async def test_sessions_without_cookies(ground: Ground) -> None:
    """`cookies: false` holds in sessions too."""
    downloader = ground.open(2, cookies=False)
    assert await ground.one_by_one(downloader, "", "", "") == ["id=1", "id=2", "id=3"]


async def test_names_and_rules_travel_through_a_center(tmp_path: Path) -> None:
    """A6: agents get the session's name and the proxy's login; people are shown neither."""
    proxy = "http://bee:honey@proxy.test:3128"
    async with running_center(tmp_path) as center:
        await center.open_run("r", exits={"proxies": [proxy], "tries": 2}, sessions=3)
        await center.put("r", [{"uri": "http://127.0.0.1/x", "session": "alice"}])
        await center.dispatched()
        agent = center.hand_agent()
        await agent.register()
        reply = await agent.call("lease", LeaseAsk(agent.id, 1, 0.0, ("http",)))
        leased = reply.read(LeaseReply)
        assert [work.session for work in works_of(leased.blocks[0])] == ["alice"]
        assert leased.runs["r"].exits == ExitRules(proxies=(proxy,), tries=2)
        for path in ("/api/v1/runs", "/api/v1/runs/r"):
            shown = (await center.admin.get(path)).content
            assert b"***@proxy.test:3128" in shown
            assert b"honey" not in shown
        wrong = {"settings": {"exits": {"proxies": ["ftp://bee:honey@x:1"]}}}
        refused = await center.admin.put("/api/v1/runs/other", wrong)
        assert refused.status == 400
        assert b"honey" not in refused.content


async def test_a_spider_names_sessions() -> None:
    """`Request(session=...)` comes back with its page; the same URL is asked for by each."""
    asked = [Request("http://x.test/", session=name) for name in ("alice", "bob")]
    sent = [sealed(request) for request in asked]
    assert [one.session for one in sent] == ["alice", "bob"]
    page = Page(1, sent[0].uri, "done", meta=sent[0].meta)
    assert opened(page).session == "alice"
    assert not asked[0].is_plain


async def test_sessions_that_end_leave_nothing_open(ground: Ground) -> None:
    """Connections and handles go with the identity, not with the run."""
    downloader = ground.open(SessionRules(uses=1))
    await ground.one_by_one(downloader, "", "")
    before = open_files()
    await ground.one_by_one(downloader, *[""] * 50)
    assert ground.visitors.count == 52
    assert open_files() <= before + 2
