"""How a machine becomes an agent, stays the only one of its kind, and is shut out again.
Real HTTP, real tokens."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from hashlib import sha256
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import pytest

from skep.center.http.authentication import Role
from skep.model.fleet.agent import Registration, Vitals
from skep.testing.grounds.centers import Caller, RunningCenter, running_center
from skep.testing.polling import until
from skep.wire.messages import (
    SESSION_HEADER,
    Heartbeat,
    HeartbeatReply,
    Join,
    Joined,
    LeaseAsk,
    Register,
    Registered,
)

SECRET = "skep_agent_made-by-the-agent"
LIMIT = 50


@pytest.fixture
async def center(tmp_path: Path) -> AsyncIterator[RunningCenter]:
    async with running_center(
        tmp_path, center_wrong_tokens=LIMIT, sites_breaker_after=9, sites_crawl_delay_cap=7.0
    ) as running:
        yield running


def with_token(center: RunningCenter, token: str) -> Caller:
    return Caller(center._session, center.url, token)


async def join_token(center: RunningCenter, **wish: Any) -> str:
    answer = await center.admin.post("/api/v1/join-tokens", wish)
    assert answer.status == 201
    token: str = answer.json()["token"]
    return token


def join(agent: str, secret: str = SECRET, **more: Any) -> Join:
    return Join(agent, sha256(secret.encode()).digest(), **more)


async def joined(center: RunningCenter, agent: str, **wish: Any) -> Caller:
    """An agent with a credential of its own."""
    secret = f"skep_agent_{agent}"
    once = with_token(center, await join_token(center, **wish))
    (await once.packed("/node/join", join(agent, secret))).read(Joined)
    return with_token(center, secret)


async def register(caller: Caller, message: Register) -> Registered:
    return (await caller.packed("/node/register", message)).read(Registered)


async def test_a_machine_joins_once(center: RunningCenter) -> None:
    """Faults 65, 66: the answer can be asked for again, by the same machine only."""
    once = with_token(center, await join_token(center, group="home", labels={"site": "attic"}))
    for dry in (True, True, False, False):
        answer = (await once.packed("/node/join", join("a1", dry=dry))).read(Joined)
        assert (answer.agent, answer.grant.group) == ("a1", "home")
    for agent, secret in (("a1", "another"), ("a2", SECRET), ("a2", "another")):
        refused = await once.packed("/node/join", join(agent, secret))
        assert (refused.status, refused.problem().code) == (409, "conflict")
        assert "used already" in refused.problem().detail
    for bad in ("a.1", "", "x" * 65, "a\n", "run:4", "kind:http", "a/b", "a,b", ".."):
        fresh = with_token(center, await join_token(center))
        assert (await fresh.packed("/node/join", join(bad))).status == 400
    assert (await once.packed("/node/join", join("a1", protocol=99))).status == 426


async def test_group_and_labels_are_the_centers_word(center: RunningCenter) -> None:
    """Fault 65: an agent cannot move itself into another group."""
    mine = await joined(center, "a1", group="home", labels={"site": "attic"})
    about = Registration("a1", "one", group="vault", labels={"site": "bank", "own": "x"})
    await register(mine, Register(about))
    (line,) = (await center.admin.get("/api/v1/agents")).json()["items"]
    kept = line["agent"]["registration"]
    assert (kept["group"], kept["labels"]) == ("home", {"site": "attic", "own": "x"})
    assert line["agent"]["bound"]


async def test_a_joined_agent_is_only_itself(center: RunningCenter) -> None:
    """Faults 65, 66: neither another credential nor the shared one; no second join."""
    mine, other = await joined(center, "a1"), await joined(center, "a2")
    await register(mine, Register(Registration("a1", "one")))
    for thief in (other, center.agent):
        for path, message in (
            ("register", Register(Registration("a1", "one"))),
            ("heartbeat", Heartbeat("a1")),
            ("lease", LeaseAsk("a1")),
        ):
            assert (await thief.packed(f"/node/{path}", message)).status == 403
    again = with_token(center, await join_token(center))
    refused = await again.packed("/node/join", join("a1"))
    assert (refused.status, "--agent a1" in refused.problem().detail) == (409, True)
    heir = with_token(center, await join_token(center, agent="a1"))
    (await heir.packed("/node/join", join("a1"))).read(Joined)
    await register(with_token(center, SECRET), Register(Registration("a1", "one")))
    for thief in (other, center.agent):
        with pytest.raises(aiohttp.WSServerHandshakeError):
            async with thief.socket("a1"):
                pass


async def test_the_rules_for_hosts_come_from_the_center(center: RunningCenter) -> None:
    """Agents ask hosts as the center is set, not as each of them is."""
    answer = await register(center.agent, Register(Registration("a1", "one")))
    assert answer.sites is not None
    rules = answer.sites
    assert (rules.adaptive, rules.breaker_after, rules.crawl_delay_cap) == (True, 9, 7.0)


async def test_runs_that_are_over_are_named(center: RunningCenter) -> None:
    """Fault 18: what was released while the agent was away does not come back with it."""
    for run in ("live", "paused", "gone"):
        await center.open_run(run)
    await center.admin.post("/api/v1/runs/paused/pause")
    await center.admin.post("/api/v1/runs/gone/cancel")
    runs = ["live", "paused", "gone", "never"]
    answer = await register(center.agent, Register(Registration("a1", "one"), runs=runs))
    assert answer.released == ["gone", "never"]


class Process:
    """A process of an agent: a session, and calls under it."""

    def __init__(self, center: RunningCenter, mark: str, known: tuple[str, ...] = ()) -> None:
        self.caller, self.mark, self.known, self.session = center.agent, mark, known, 0

    async def call(self, name: str, message: Any) -> Any:
        data = {SESSION_HEADER: str(self.session)} if self.session else {}
        return await self.caller.send("POST", f"/node/{name}", msgspec.json.encode(message), data)

    async def register(self) -> Any:
        about = Registration("a1", "one")
        message = Register(about, session=self.session, mark=self.mark, marks=self.known)
        answer = await self.call("register", message)
        if answer.status == 200:
            self.session = answer.read(Registered).session
        return answer


async def test_the_newest_process_is_the_agent(center: RunningCenter) -> None:
    """Fault 66: every call of the older one is refused, and it cannot come back."""
    old, new = Process(center, "m1"), Process(center, "m2", ("m1",))
    await old.register()
    async with center.agent.socket("a1", {SESSION_HEADER: str(old.session)}) as socket:
        await new.register()
        assert (old.session, new.session) == (1, 2)
        calls: dict[str, Any] = {
            "heartbeat": Heartbeat("a1"),
            "lease": LeaseAsk("a1"),
            "block": {"agent": "a1", "blocks": []},
            "giveback": {"agent": "a1", "blocks": []},
        }
        for name, message in calls.items():
            refused = await old.call(name, message)
            assert (refused.status, refused.problem().code) == (409, "fenced"), name
            assert (await new.call(name, message)).status == 200
        assert (await old.register()).problem().code == "fenced"
        closed = await asyncio.wait_for(socket.receive(), 5)
        assert (closed.type, closed.data) == (aiohttp.WSMsgType.CLOSE, 1008)
    again = Process(center, "m3", ("m1",))
    assert (await again.register()).problem().code == "fenced"
    assert (await Process(center, "m4", ("m2",)).register()).status == 200
    assert (await new.call("heartbeat", Heartbeat("a1"))).problem().code == "fenced"
    (line,) = (await center.admin.get("/api/v1/agents")).json()["items"]
    assert line["agent"]["session"] == 3


async def beat(center: RunningCenter, obeyed: int = 0) -> list[tuple[str, int]]:
    message = Heartbeat("a1", Vitals(load=0.5, free_disk=7), obeyed=obeyed)
    reply = (await center.agent.packed("/node/heartbeat", message)).read(HeartbeatReply)
    return [(command.name, command.order) for command in reply.commands if command.order]


async def test_an_order_is_told_until_it_is_obeyed(center: RunningCenter) -> None:
    """C8, A2: with every heartbeat, and shown; what is done is not told again."""
    await register(center.agent, Register(Registration("a1", "one")))
    await center.admin.post("/api/v1/agents/a1/drain")
    for _ in range(3):
        assert await beat(center) == [("drain", 1)]
    await center.admin.post("/api/v1/agents/a1/exit")
    assert await beat(center, obeyed=1) == [("exit", 2)]
    shown = (await center.admin.get("/api/v1/agents/a1")).json()
    assert [(o["name"], o["outcome"]) for o in shown["orders"]] == [("exit", ""), ("drain", "done")]
    assert (shown["agent"]["aside"], shown["agent"]["pending"]) == ("draining", True)
    assert (shown["agent"]["vitals"]["load"], shown["agent"]["vitals"]["free_disk"]) == (0.5, 7)
    await register(center.agent, Register(Registration("a1", "one")))
    assert await beat(center) == [], "the process that was told to exit is gone"


async def test_an_order_that_was_obeyed_late_is_done(center: RunningCenter) -> None:
    """A2: the last beat of an agent that was cut off for long says that it has obeyed."""
    await register(center.agent, Register(Registration("a1", "one")))
    await center.admin.post("/api/v1/agents/a1/exit")
    last = Heartbeat("a1", deaf=1000.0, obeyed=1)
    reply = (await center.agent.packed("/node/heartbeat", last)).read(HeartbeatReply)
    assert not reply.commands
    (order,) = (await center.admin.get("/api/v1/agents/a1")).json()["orders"]
    assert (order["name"], order["outcome"]) == ("exit", "done")


@pytest.mark.parametrize("verb", ["disable", "cordon", "drain"])
async def test_who_is_put_aside_keeps_what_it_has(center: RunningCenter, verb: str) -> None:
    """C3: no new work until it is enabled again; what it holds counts."""
    agent = center.hand_agent()
    await agent.register()
    await center.open_run("r", block_size=1)
    await center.put("r", ["http://127.0.0.1/1", "http://127.0.0.1/2"])
    await center.dispatched()
    (block,) = await agent.lease()
    await center.admin.post(f"/api/v1/agents/a1/{verb}")
    assert (await agent.call("lease", LeaseAsk("a1"))).status == 403
    assert (await agent.heartbeat(want=1)).lease is None
    assert await agent.finish(block) == "stored"
    await center.admin.post("/api/v1/agents/a1/enable")
    assert len(await agent.lease()) == 1


async def test_labels_set_by_people(center: RunningCenter) -> None:
    about = Registration("a1", "one", labels={"site": "attic", "rack": "1"})
    await register(center.agent, Register(about))
    changes = {"labels": {"rack": None, "tier": "2"}}
    answer = await center.admin.put("/api/v1/agents/a1/labels", changes)
    assert answer.json()["agent"]["registration"]["labels"] == {"site": "attic", "tier": "2"}
    for bad in ({"": "x"}, {"a\n": "x"}, {"a": "x" * 201}):
        assert (await center.admin.put("/api/v1/agents/a1/labels", {"labels": bad})).status == 400
    missing = await center.admin.put("/api/v1/agents/ghost/labels", changes)
    assert missing.problem().code == "unknown_agent"


async def test_tokens_of_people(center: RunningCenter) -> None:
    """Faults 50, 65: made, listed without their secret, revoked by name."""
    wish = {"role": "operator", "name": "zoë", "seconds": 3600}
    made = (await center.admin.post("/api/v1/tokens", wish)).json()
    zoe = with_token(center, made["token"])
    assert (await zoe.get("/api/v1/runs")).status == 200
    assert (await zoe.post("/api/v1/tokens", wish)).status == 403
    answer = await center.admin.get("/api/v1/tokens")
    assert made["token"].encode() not in answer.content
    mine = [line for line in answer.json()["items"] if line["token"]["id"] == made["id"]]
    assert [(line["state"], line["token"]["note"]) for line in mine] == [("live", "zoë")]
    gone = (await center.admin.send("DELETE", f"/api/v1/tokens/{made['id']}")).json()
    assert gone["state"] == "revoked"
    for bad in ({"role": "agent"}, {"role": "driver"}, {"role": "viewer", "seconds": 0}):
        assert (await center.admin.post("/api/v1/tokens", bad)).status == 400
    assert (await center.admin.send("DELETE", "/api/v1/tokens/ffff")).status == 404


async def test_guessing_is_slowed_down(center: RunningCenter) -> None:
    """Fault 71: 500 wrong tokens over HTTP; known agents continue."""
    assert (await center.admin.get("/api/v1/runs")).status == 200
    began = time.monotonic()
    guesses = [with_token(center, f"skep_admin_{number}") for number in range(500)]
    answers = [await guess.get("/api/v1/runs") for guess in guesses[:LIMIT]]
    answers += await asyncio.gather(*(guess.get("/api/v1/runs") for guess in guesses[LIMIT:]))
    statuses = [answer.status for answer in answers]
    assert time.monotonic() - began < 60
    assert (statuses.count(401), statuses.count(429)) == (LIMIT, 500 - LIMIT)
    assert answers[-1].headers["Retry-After"] == "60"
    assert (await center.admin.get("/api/v1/runs")).status == 200
    assert (await center.anyone.get("/livez")).status == 200


async def test_new_tokens_are_good_where_others_guess(center: RunningCenter) -> None:
    """S10: an agent and a person who never called from there before, behind one router."""
    for number in range(LIMIT + 1):
        await with_token(center, f"skep_admin_{number}").get("/api/v1/runs")
    assert (await with_token(center, "skep_admin_x").get("/api/v1/runs")).status == 429
    fresh = await center.caller(Role.VIEWER)
    assert (await fresh.get("/api/v1/runs")).status == 200
    agent = await center.caller(Role.AGENT, "a1")
    await register(agent, Register(Registration("a1", "one")))
    async with agent.socket("a1") as commands:
        assert not commands.closed


@pytest.mark.parametrize(("trusted", "limited"), [((), 5), (("127.0.0.1",), 0)])
async def test_only_a_trusted_proxy_says_who_calls(
    tmp_path: Path, trusted: tuple[str, ...], limited: int
) -> None:
    """S10: X-Forwarded-For counts from proxies that a setting names, and from nowhere else."""
    flags: dict[str, Any] = {"center_wrong_tokens": 5, "center_trusted_proxies": trusted}
    async with running_center(tmp_path / "other", **flags) as other:
        guesser = with_token(other, "skep_admin_x")
        statuses = [
            (await guesser.send("GET", "/api/v1/runs", headers=forwarded(n))).status
            for n in range(10)
        ]
    assert statuses.count(429) == limited


def forwarded(number: int) -> dict[str, str]:
    return {"X-Forwarded-For": f"198.51.100.{number}"}


async def test_the_history_of_beats_is_thinned_out(center: RunningCenter) -> None:
    """C2: for charts, never more points than asked for, the newest among them."""
    await register(center.agent, Register(Registration("a1", "one")))
    now = center.services.clock.now()
    for second in range(100):
        beats = [("a1", Vitals(rate=float(second)))]
        await center.services.store.agents.heartbeat(beats, now - 200 + second)
    for points in (2, 7, 99, 100, 1000):
        answer = await center.admin.get(f"/api/v1/agents/a1/vitals?points={points}")
        rates = [vitals["rate"] for _, vitals in answer.json()["items"]]
        assert (len(rates) <= points, rates[-1], rates == sorted(rates)) == (True, 99.0, True)


async def revoked_after(caller: Caller, message: Any) -> float:
    """Seconds until a caller hears no more; the test fails after 10."""
    began = time.monotonic()
    await until(
        lambda: caller.packed("/node/heartbeat", message),
        lambda answer: answer.status == 401,
        seconds=10,
    )
    return time.monotonic() - began


async def test_a_revoked_agent_is_out_everywhere(center: RunningCenter) -> None:
    """Fault 65: calls, a lease call that waits, and the open socket, within 5 s."""
    mine = await joined(center, "a1")
    await register(mine, Register(Registration("a1", "one")))
    async with mine.socket("a1") as socket:
        waiting = asyncio.create_task(mine.packed("/node/lease", LeaseAsk("a1", wait=20.0)))
        await mine.packed("/node/heartbeat", Heartbeat("a1"))
        began = time.monotonic()
        await center.admin.post("/api/v1/agents/a1/revoke")
        await revoked_after(mine, Heartbeat("a1"))
        closed = await asyncio.wait_for(socket.receive(), 5)
        assert closed.type is aiohttp.WSMsgType.CLOSE
        assert time.monotonic() - began < 5
        await center.open_run("r")
        await center.put("r", ["http://127.0.0.1/1"])
        await center.dispatched()
        assert (await asyncio.wait_for(waiting, 25)).status in {200, 401}
    assert (await center.ledger()).leased == 0
    assert (await center.caller(Role.AGENT, "a2")).token


async def test_the_processes_of_a_machine_are_revoked_together(center: RunningCenter) -> None:
    """Fault 65: they have one credential, which the id of a process could not end."""
    crew, other = await joined(center, "crew"), await joined(center, "other")
    for caller, agent in ((crew, "crew.1"), (crew, "crew.2"), (other, "other.1")):
        await register(caller, Register(Registration(agent, "machine")))
    for _ in range(2):
        assert (await center.admin.post("/api/v1/agents/crew.1/revoke")).status == 200
    for agent in ("crew.1", "crew.2"):
        await revoked_after(crew, Heartbeat(agent))
    assert (await other.packed("/node/heartbeat", Heartbeat("other.1"))).status == 200
    lines = (await center.admin.get("/api/v1/agents")).json()["items"]
    asides = {line["agent"]["registration"]["id"]: line["agent"]["aside"] for line in lines}
    assert asides == {"crew.1": "revoked", "crew.2": "revoked", "other.1": ""}


async def test_who_has_a_shared_token_is_not_said_to_be_revoked(center: RunningCenter) -> None:
    """Fault 65: it gets no more work, and the answer says that its token is still good."""
    await register(center.agent, Register(Registration("a1", "one")))
    refused = await center.admin.post("/api/v1/agents/a1/revoke")
    assert (refused.status, "skep token revoke" in refused.problem().detail) == (409, True)
    assert (await center.agent.packed("/node/heartbeat", Heartbeat("a1"))).status == 200
    shown = (await center.admin.get("/api/v1/agents/a1")).json()["agent"]
    assert (shown["enabled"], shown["aside"]) == (False, "")
