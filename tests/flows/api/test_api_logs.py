"""Log lines over the API: agents send, people search, follow, look around and download."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest

from skep.center.http.authentication import Role
from skep.errors import DiskFull
from skep.logs.line_format import encode_entry, make_entry
from skep.model.logs import LogBatch, LogEntry, LogSource, LogSourceKind
from skep.testing.grounds.centers import Answer, HandAgent, RunningCenter, running_center
from skep.testing.grounds.jobs import local_agent
from skep.testing.polling import until
from skep.wire.messages import LogLines, LogLinesReply

NOW = 1_700_000_000.0


@pytest.fixture
async def center(tmp_path: Path) -> AsyncIterator[RunningCenter]:
    limits = {"logs_agent_burst": 200_000, "logs_agent_rate": 2000}
    async with running_center(tmp_path / "data", **limits) as running:
        yield running


def source(agent: str = "a1", kind: LogSourceKind = LogSourceKind.AGENT, **more: str) -> LogSource:
    return LogSource(kind, more.pop("name", agent), more.pop("run", ""), agent)


def batch(
    texts: Sequence[str],
    of: LogSource | None = None,
    first: int = 0,
    token: int = 1,
    level: int = 20,
) -> LogBatch:
    lines = [encode_entry(make_entry(NOW + first + n, level, text)) for n, text in enumerate(texts)]
    return LogBatch(of or source(), token, first, b"\n".join(lines))


async def agent_of(center: RunningCenter, name: str = "a1") -> HandAgent:
    hand = center.hand_agent(name)
    assert (await hand.register()).takes_logs
    return hand


async def send(hand: HandAgent, *batches: LogBatch) -> LogLinesReply:
    answer = await hand.call("logs", LogLines(hand.id, list(batches)))
    return answer.read(LogLinesReply)


async def ask(center: RunningCenter, path: str = "", **asks: Any) -> Answer:
    return await center.admin.get(f"/api/v1/logs{path}?{urlencode(asks)}")


async def texts(center: RunningCenter, **asks: Any) -> list[str]:
    return [line["text"] for line in (await ask(center, **asks)).json()["lines"]]


async def test_lines_of_agents_are_stored_once_and_found(center: RunningCenter) -> None:
    """R4: by text, pattern, level, source, run, agent and time; newest first."""
    hand = await agent_of(center)
    spoken = batch(["registered", "Timed out at example.org"])
    app = batch(["hello", "bye"], source(kind=LogSourceKind.APP, name="tick-1/0", run="tick-1"))
    for _ in range(2):
        reply = await send(hand, spoken, app)
        assert [answer.next for answer in reply.answers] == [2, 2]
    assert await texts(center, filter="timed out") == ["Timed out at example.org"]
    assert await texts(center, pattern="(?i)^timed") == ["Timed out at example.org"]
    assert await texts(center, filter="run:tick-1") == ["bye", "hello"]
    assert await texts(center, filter="source:app -line:bye") == ["hello"]
    assert await texts(center, filter="job:tick") == ["bye", "hello"]
    assert await texts(center, filter="job:ti*,other source:agent,app bye") == ["bye"]
    assert await texts(center, filter="agent:a2") == []
    assert await texts(center, filter="agent:a*,b* hello,bye") == ["bye", "hello"]
    assert await texts(center, filter="until:2023-11-14T22:13:21Z source:app") == ["hello"]
    assert await texts(center, level=30) == []
    await send(hand, batch(["bad"], first=2, level=40))
    assert await texts(center, level=30) == ["bad"]
    assert await texts(center, filter="level:error,critical") == ["bad"]
    assert await texts(center, filter="-level:info") == ["bad"]


async def test_pages_continue_and_say_how_far_they_got(center: RunningCenter) -> None:
    hand = await agent_of(center)
    await send(hand, batch([f"line {n}" for n in range(25)]))
    found, cursor = [], ""
    while True:
        page = (await ask(center, limit=10, cursor=cursor)).json()
        found += [line["text"] for line in page["lines"]]
        cursor = page["cursor"]
        if not cursor:
            break
        assert page["scanned_to"] == page["lines"][-1]["time"]
    assert found == [f"line {n}" for n in reversed(range(25))]


async def test_context_is_of_the_same_source(center: RunningCenter) -> None:
    hand = await agent_of(center)
    await send(hand, batch([f"line {n}" for n in range(9)]), batch(["x"], source(name="a1")))
    (hit,) = (await ask(center, filter='"line 4"')).json()["lines"]
    named = {name: hit[name] for name in ("kind", "source", "run", "agent", "token", "offset")}
    found = (await ask(center, "/context", before=2, after=1, **named)).json()["lines"]
    assert [line["text"] for line in found] == ["line 2", "line 3", "line 4", "line 5"]


async def test_following_gets_each_line_once_late_ones_too(center: RunningCenter) -> None:
    hand = await agent_of(center)
    begun = (await ask(center)).json()["position"]
    waiting = asyncio.create_task(ask(center, "/follow", position=begun, wait=20))
    await send(hand, batch(["new"]))
    first = (await waiting).json()
    assert [line["text"] for line in first["lines"]] == ["new"]
    await send(hand, batch(["late"], source(kind=LogSourceKind.APP, name="n", run="r")))
    second = (await ask(center, "/follow", position=first["position"])).json()
    assert [line["text"] for line in second["lines"]] == ["late"]
    again = (await ask(center, "/follow", position=second["position"])).json()
    assert (again["lines"], again["position"]) == ([], second["position"])


async def test_lines_can_be_downloaded_oldest_first(center: RunningCenter) -> None:
    """R7: as text and as JSON lines, with the cursor of the rest."""
    hand = await agent_of(center)
    await send(hand, batch(["one", "two", "three"]))
    text = await ask(center, "/download", limit=2)
    assert text.content.decode().splitlines() == [
        "2023-11-14T22:13:21.000Z info agent a1: two",
        "2023-11-14T22:13:22.000Z info agent a1: three",
    ]
    rest = await ask(center, "/download", format="json", cursor=text.headers["skep-cursor"])
    (line,) = [json.loads(line) for line in rest.content.splitlines()]
    assert (line["text"], line["agent"]) == ("one", "a1")
    assert rest.headers["skep-cursor"] == ""


@pytest.mark.parametrize(
    ("asks", "said"),
    [
        ({"pattern": "(((a"}, "is not valid"),
        ({"pattern": "a" * 1500}, "1500 characters"),
        ({"filter": "leel:error"}, "column 1"),
        ({"filter": "level:loud"}, "not a value of"),
        ({"filter": "x" * 15_000}, "characters"),
        ({"cursor": "nonsense!"}, "is not a cursor"),
        ({"limit": 5000}, "limit"),
        ({"level": 60}, "level"),
    ],
)
async def test_bad_searches_are_refused(
    center: RunningCenter, asks: dict[str, Any], said: str
) -> None:
    answer = await ask(center, **asks)
    assert answer.status == 400
    assert said in answer.content.decode()


async def test_a_pattern_made_to_hang_and_a_filter_that_never_matches_end(
    center: RunningCenter,
) -> None:
    """RE2 takes linear time; a call reads a bounded number of bytes."""
    hand = await agent_of(center)
    await send(hand, batch(["a" * 30_000 + "!"]))
    assert await texts(center, pattern="(a+)+$") == []
    assert await texts(center, filter="run:none agent:none nothing") == []


async def test_an_agent_sends_lines_of_its_own_only(center: RunningCenter) -> None:
    hand = await agent_of(center)
    await agent_of(center, "a2")
    for of in (
        source("a2"),
        source("a1", name="a2"),
        source("a1", LogSourceKind.CENTER),
        source("a1", LogSourceKind.SPIDER),
        LogSource(LogSourceKind.AGENT, "a1"),
    ):
        answer = await hand.call("logs", LogLines("a1", [batch(["x"]), batch(["forged"], of)]))
        assert answer.status == 403
    own = await center.caller(Role.AGENT, "a2")
    stolen = HandAgent(own, "a1")
    assert (await stolen.call("logs", LogLines("a1", [batch(["x"])]))).status == 403
    stranger = center.hand_agent("nobody")
    assert (await stranger.call("logs", LogLines("nobody", []))).status == 404
    assert await texts(center) == []


async def test_hostile_lines_are_repaired_and_damaged_batches_refused(
    center: RunningCenter,
) -> None:
    """NUL, broken UTF-8, 10 MB: cut or escaped and said so, and the others are stored."""
    hand = await agent_of(center)
    raw = LogEntry(NOW, 20, "nul \0 and \u202e")
    long = LogEntry(NOW, 20, "x" * 100_000)
    bad = LogBatch(source(kind=LogSourceKind.APP, name="b", run="b"), 1, 0, b'{"time": 1')
    broken = LogBatch(source(kind=LogSourceKind.APP, name="c", run="c"), 1, 0, b'{"text":"\xff"}')
    good = LogBatch(source(), 1, 0, b"\n".join(map(encode_entry, (raw, long))))
    reply = await send(hand, bad, broken, good)
    assert [bool(answer.refused) for answer in reply.answers] == [True, True, False]
    cut, escaped = await texts(center)
    assert escaped == "nul \\x00 and \\u202e"
    assert cut.endswith("bytes cut]")
    large = batch(["y" * 60_000] * 80)
    assert (await hand.call("logs", LogLines("a1", [large]))).status == 413


async def test_an_agent_that_floods_waits_and_the_others_do_not(center: RunningCenter) -> None:
    """R4: a budget per agent, and the figures show it."""
    loud, quiet = await agent_of(center, "loud"), await agent_of(center, "quiet")
    first = 0
    while (
        not (reply := await send(loud, batch(["x" * 50_000], source("loud"), first)))
        .answers[0]
        .wait
    ):
        first = reply.answers[0].next
    assert first < 10
    assert (await send(quiet, batch(["hello"], source("quiet")))).answers[0].next == 1
    await loud.call("logs", LogLines("loud", [], dropped=17))
    budgets = (await center.admin.get("/api/v1/logs/budgets")).json()
    assert budgets["delayed"] == {"loud": 1}
    assert budgets["agent_drops"] == {"loud": 17}
    assert {one["agent"] for one in budgets["agents"]} == {"loud", "quiet"}


async def test_a_stale_token_is_refused_and_named(center: RunningCenter) -> None:
    hand = await agent_of(center)
    await send(hand, batch(["new"], token=5))
    reply = await send(hand, batch(["old"], token=4))
    assert "token 5 is in use" in reply.answers[0].refused
    assert await texts(center) == ["new"]


async def test_viewers_read_and_calls_without_a_token_do_not(center: RunningCenter) -> None:
    viewer = await center.caller(Role.VIEWER)
    for path in ("", "/follow", "/download", "/budgets"):
        assert (await viewer.get(f"/api/v1/logs{path}")).status == 200
        assert (await center.anyone.get(f"/api/v1/logs{path}")).status == 401


async def test_a_full_disk_takes_no_lines_and_the_agent_keeps_them(
    center: RunningCenter, monkeypatch: pytest.MonkeyPatch
) -> None:
    hand = await agent_of(center)

    def full() -> None:
        raise DiskFull("no space is left")

    with monkeypatch.context() as patch:
        patch.setattr(center.services.logs.intake, "_check_disk", full)
        assert (await hand.call("logs", LogLines("a1", [batch(["x"])]))).status == 507
    assert await texts(center) == []
    again = LogLines("a1", [batch(["x"])])
    await until(lambda: hand.call("logs", again), lambda answer: answer.status == 200)
    assert await texts(center) == ["x"]


async def test_an_agent_sends_no_lines_to_a_center_that_takes_none(tmp_path: Path) -> None:
    """R4: older centers do not know the route; lines wait on the agent's disk."""
    async with running_center(tmp_path / "data", logs_store=False) as center:
        hand = center.hand_agent("old")
        assert not (await hand.register()).takes_logs
        async with local_agent(center) as agent:
            launched = agent._launched
            assert launched is not None
            logs = launched.agent.logs
            logs._on = True  # as an agent of its own, with its own settings
            await asyncio.to_thread(logs.open)
            agent.put_line(make_entry(NOW, 20, "kept"))
            await until(lambda: logs.buffer.waiting == 1)
        metrics = (await center.anyone.get("/metrics")).content.decode()
        assert 'skep_call_duration_seconds_count{route="/node/logs"} 0.0' in metrics


async def test_lines_of_an_agent_arrive_and_survive_its_restart(center: RunningCenter) -> None:
    async with local_agent(center) as agent:
        for number in range(3):
            agent.put_line(make_entry(NOW + number, 20, f"line {number}"))
        await until(lambda: texts(center, filter="line:line"), lambda found: len(found) == 3)
    async with local_agent(center) as agent:
        agent.put_line(make_entry(NOW, 20, "line 3"))
        found = await until(
            lambda: texts(center, filter="line:line"), lambda found: len(found) == 4
        )
    assert sorted(found) == [f"line {n}" for n in range(4)]
