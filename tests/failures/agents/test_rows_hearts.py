"""Many hearts and long hours: an outage that ends for all at once, beats that come late
(faults 11, 21). The real `HeartbeatLoop` and the real `Roster` on a clock that is moved by
hand, and real agents on a real line in small."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import cast

import pytest
from msgspec.structs import replace

from skep.agent.heartbeat import HeartbeatHooks, HeartbeatLoop
from skep.errors import CenterUnreachable
from skep.fleet.roster import Roster
from skep.model.block import Held
from skep.model.fleet.agent import AgentView, Arrival, Registration, Vitals
from skep.settings import CenterSettings
from skep.store.ports import Store
from skep.testing.clock import ManualClock
from skep.testing.faultproxy import FaultProxy
from skep.testing.fleet import Fleet, running_agents, tell
from skep.testing.servers.recording_sites import most_in_a_second
from skep.wire.client import CenterClient
from skep.wire.messages import Heartbeat, HeartbeatReply, Register, Registered

SHIPPED = CenterSettings()
#: Steps of the clock, and turns of the event loop in each: a beat needs fewer.
STEP, TURNS = 0.05, 8


class Line:
    """Between all hearts and a center: up or down, and as late as chance has it."""

    def __init__(self, clock: ManualClock, rng: Random, jitter: float = 0.0) -> None:
        self.address = "simulated"
        self.up = True
        self.tries: list[float] = []
        #: (moment, agent) of each beat, as the center received it.
        self.heard: list[tuple[float, str]] = []
        self.agent_session = 0
        self._clock = clock
        self._rng = rng
        self._jitter = jitter

    async def register(self, _message: Register) -> Registered:
        return Registered(SHIPPED.heartbeat_every, 30.0, "c", "0", SHIPPED.alive_after)

    async def heartbeat(self, beat: Heartbeat, seconds: float) -> HeartbeatReply:
        self.tries.append(self._clock.monotonic())
        there, back = self._delay(), self._delay()
        await self._clock.sleep(there)
        if not self.up:
            raise CenterUnreachable("refused")
        self.heard.append((self._clock.monotonic(), beat.agent))
        await self._clock.sleep(min(back, seconds - there))
        if there + back > seconds:
            raise CenterUnreachable("no answer in time")
        return HeartbeatReply()

    def _delay(self) -> float:
        return self._rng.uniform(0, self._jitter) if self._jitter else 0.0


def heartbeats(line: Line, name: str, clock: ManualClock, rng: Random) -> HeartbeatLoop:
    async def answered(_held: list[Held], _reply: HeartbeatReply) -> None: ...

    pulse = HeartbeatHooks(Vitals, list, answered, lambda: None)
    return HeartbeatLoop(cast("CenterClient", line), Registration(name, name), pulse, clock, rng)


@asynccontextmanager
async def beating(line: Line, count: int, clock: ManualClock) -> AsyncIterator[list[HeartbeatLoop]]:
    """`count` agents that started within one heartbeat of each other."""
    rng = Random(11)
    hearts = [heartbeats(line, f"a{number}", clock, Random(number)) for number in range(count)]
    tasks = []
    for one in hearts:
        tasks.append(asyncio.ensure_future(one.run()))
        await go_on(clock, rng.uniform(0, 2 * SHIPPED.heartbeat_every / count))
    try:
        yield hearts
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def go_on(clock: ManualClock, seconds: float) -> None:
    until = clock.monotonic() + seconds
    while (left := until - clock.monotonic()) > 1e-9:
        clock.advance(min(STEP, left))
        for _ in range(TURNS):
            await asyncio.sleep(0)


@pytest.mark.parametrize("outage", [60.0, pytest.param(600.0, marks=pytest.mark.slow)])
async def test_a_hundred_agents_come_back_without_a_herd(clock: ManualClock, outage: float) -> None:
    """Fault 11: tries in an outage stay at the rate of heartbeats, and at its end no agent waits
    longer than a heartbeat, nor do more come in a second than in two ordinary ones."""
    count = 100
    line = Line(clock, Random(11))
    async with beating(line, count, clock) as hearts:
        await go_on(clock, 30.0)
        usual = most_in_a_second(at for at, _ in line.heard)
        line.up = False
        down = clock.monotonic()
        await go_on(clock, outage)
        tries = [at for at in line.tries if at >= down]
        line.up = True
        up, before = clock.monotonic(), [one.beats for one in hearts]
        await go_on(clock, SHIPPED.heartbeat_every + 1.0)
        assert all(one.beats > was for one, was in zip(hearts, before, strict=True))
    returns: dict[str, float] = {}
    for at, agent in line.heard:
        if at >= up:
            returns.setdefault(agent, at - up)
    p95 = sorted(returns.values())[int(0.95 * count)]
    peak = most_in_a_second(at for at, _ in line.heard if at >= up)
    tell(
        "11",
        agents=count,
        outage=outage,
        tries_a_second=len(tries) / outage,
        usual_peak_a_second=usual,
        peak_a_second_at_return=peak,
        back_p95=p95,
        back_last=max(returns.values()),
    )
    assert len(returns) == count
    assert max(returns.values()) <= SHIPPED.heartbeat_every + STEP
    assert peak <= 2 * count / SHIPPED.heartbeat_every


class Book:
    """As much of a store as a roster needs, in memory: hours have to pass in seconds."""

    def __init__(self) -> None:
        self.agents = self
        self._views: dict[str, AgentView] = {}

    async def register(self, who: Registration, now: float, _arrival: Arrival) -> AgentView:
        view = self._views[who.id] = AgentView(who, enabled=True, registered_at=now, seen_at=now)
        return view

    async def heartbeat(
        self, heartbeats: Sequence[tuple[str, Vitals]], now: float, _sessions: object
    ) -> list[str]:
        for agent, _ in heartbeats:
            self._views[agent] = replace(self._views[agent], seen_at=now)
        return []

    async def all(self) -> list[AgentView]:
        return list(self._views.values())

    async def news(self, _since: float, silent: float, ahead: float) -> list[AgentView]:
        return [view for view in self._views.values() if not silent < view.seen_at < ahead]


async def judged(heard: Sequence[tuple[float, str]], agents: int) -> tuple[int, int, int]:
    """(looks, verdicts while they beat, verdicts after they stopped) of a real roster."""
    clock = ManualClock()
    roster = Roster(SHIPPED, cast("Store", Book()), clock)
    for number in range(agents):
        await roster.register(Registration(f"a{number}", ""))
    looks = false_dead = 0
    for at, agent in heard:
        while at >= looks + SHIPPED.sweep_every:
            looks += 1
            clock.advance(max(0.0, looks - clock.monotonic()))
            false_dead += len(await roster.dead())
        clock.advance(max(0.0, at - clock.monotonic()))
        await roster.heartbeat(agent, Vitals(), 0.0)
    clock.advance(SHIPPED.alive_after + 0.1)
    return looks, false_dead, len(await roster.dead())


@pytest.mark.parametrize("hours", [0.5, pytest.param(10.0, marks=pytest.mark.slow)])
async def test_heartbeats_up_to_3_seconds_late_kill_no_agent(
    clock: ManualClock, caplog: pytest.LogCaptureFixture, hours: float
) -> None:
    """Fault 21: first the beats of real hearts on a line with 3 s of jitter each way, then
    what a real roster makes of them, looking each second; and who falls silent is found."""
    caplog.set_level("ERROR", logger="skep")  # an answer after 4 s is too late for a heart
    agents, seconds = 3, hours * 3600
    line = Line(clock, Random(21), jitter=3.0)
    async with beating(line, agents, clock):
        await go_on(clock, seconds)
    looks, false_dead, dead = await judged(line.heard, agents)
    longest = 0.0
    for number in range(agents):
        beats = [at for at, agent in line.heard if agent == f"a{number}"]
        longest = max(longest, *(after - before for before, after in pairwise(beats)))
    tell("21", hours=hours, agents=agents, looks=looks, longest_gap=longest, false_dead=false_dead)
    assert false_dead == 0
    assert dead == agents
    assert looks > seconds - 30


@pytest.mark.parametrize(
    ("env", "jitter", "seconds"),
    [
        ({"SKEP_CENTER_ALIVE_AFTER": "5"}, 0.3, 2.0),
        pytest.param(
            {"SKEP_CENTER_ALIVE_AFTER": "11", "SKEP_CENTER_HEARTBEAT_EVERY": "3"},
            1.5,
            60.0,
            marks=pytest.mark.slow,
        ),
    ],
    ids=["quick", "as shipped"],
)
async def test_a_line_with_jitter_takes_no_agent_for_dead(
    tmp_path: Path, env: dict[str, str], jitter: float, seconds: float
) -> None:
    """Fault 21: real agents behind a proxy that holds everything up by chance. A call and its
    answer are two pieces each way at most: 1.5 s for each make 3 s of jitter."""
    async with Fleet(tmp_path, env) as fleet, FaultProxy(fleet.center.port) as proxy:
        token = fleet.center.agent_token.read_text().strip()
        async with running_agents(3, [proxy.url], token, tmp_path / "agents") as agents:
            await fleet.wait_for(lambda: all(agent.heartbeats.beats > 0 for agent in agents))
            proxy.jitter = jitter
            until, looks, false_dead = time.monotonic() + seconds, 0, 0
            while time.monotonic() < until:
                known = await fleet.client.agents()
                looks += 1
                false_dead += len(known) - sum(known.values())
                await asyncio.sleep(0.1)
            proxy.jitter = 0.0
    tell("21", jitter=jitter, seconds=seconds, looks=looks, false_dead=false_dead)
    assert len(known) == 3
    assert false_dead == 0
