"""When an agent may take itself for alive: what it holds may be in other hands otherwise."""

from __future__ import annotations

import asyncio
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import cast

import msgspec

from skep.agent.agent_folder import AgentFolder
from skep.agent.heartbeat import HeartbeatHooks, HeartbeatLoop
from skep.agent.work.held_blocks import HeldBlocks
from skep.agent.work.leasing import Leaser
from skep.errors import CenterUnreachable, SkepError, UnknownAgent
from skep.model.block import Held, Leased
from skep.model.fleet.agent import Registration, Vitals
from skep.model.hosts.host import Pace
from skep.model.request import Work
from skep.model.run import RunSettings
from skep.settings import AgentSettings
from skep.testing.clock import ManualClock
from skep.wire.client import CenterClient
from skep.wire.messages import Heartbeat, HeartbeatReply, LeaseReply, Register, Registered


class Line:
    """A center that answers as the test says, after `takes` seconds."""

    def __init__(self, clock: ManualClock) -> None:
        self.address = "test"
        self.takes = 0.0
        self.error: SkepError | None = None
        self._clock = clock

    async def register(self, _message: Register) -> Registered:
        return Registered(1.0, 30.0, "c", "0", 11.0)

    async def heartbeat(self, _beat: Heartbeat, _seconds: float) -> HeartbeatReply:
        await self._clock.sleep(self.takes)
        if self.error is not None:
            raise self.error
        return HeartbeatReply()


class Chest:
    """A heart with a center at the other end."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.line = Line(self.clock)
        self.held: list[Held] = []
        pulse = HeartbeatHooks(Vitals, lambda: self.held, self._answered, lambda: None)
        client = cast("CenterClient", self.line)
        self.heartbeats = HeartbeatLoop(
            client, Registration("a", "a"), pulse, self.clock, Random(1)
        )

    async def _answered(self, held: list[Held], reply: HeartbeatReply) -> None:
        pass

    async def beat(self) -> None:
        beating = asyncio.ensure_future(self.heartbeats._send(5.0))
        await self.clock.pass_time(self.line.takes)
        await beating


async def test_alive_until_a_second_before_a_center_may_think_otherwise() -> None:
    chest = Chest()
    assert not chest.heartbeats.alive()
    await chest.heartbeats.register()
    assert chest.heartbeats.alive()
    chest.clock.advance(9.9)
    assert chest.heartbeats.alive()
    chest.clock.advance(0.2)
    assert not chest.heartbeats.alive()


async def test_what_counts_is_when_a_beat_was_sent() -> None:
    chest = Chest()
    await chest.heartbeats.register()
    chest.line.takes = 4.0
    await chest.beat()
    chest.clock.advance(5.9)
    assert chest.heartbeats.alive()
    chest.clock.advance(0.2)
    assert not chest.heartbeats.alive()


async def test_a_heartbeat_without_an_answer_does_not_count() -> None:
    chest = Chest()
    await chest.heartbeats.register()
    chest.line.error = CenterUnreachable("gone")
    for _ in range(11):
        chest.clock.advance(1.0)
        await chest.beat()
    assert not chest.heartbeats.alive()


async def test_after_a_silence_the_second_beat_counts_and_not_the_first() -> None:
    """The first renews nothing and tells of no loss: the center takes it for an echo."""
    chest = Chest()
    await chest.heartbeats.register()
    chest.clock.advance(30.0)
    await chest.beat()
    assert not chest.heartbeats.alive()
    chest.clock.advance(1.0)
    await chest.beat()
    assert chest.heartbeats.alive()


async def test_an_answer_from_before_a_silence_is_out_of_date() -> None:
    """A lease call may wait at the center while this process does not run at all."""
    chest = Chest()
    await chest.heartbeats.register()
    for _ in range(20):
        chest.clock.advance(5.0)
        await chest.beat()
    asked = chest.clock.monotonic()
    assert chest.heartbeats.alive_since(asked - 50.0)
    chest.clock.advance(12.0)
    assert not chest.heartbeats.alive_since(asked)
    await chest.beat()
    chest.clock.advance(1.0)
    await chest.beat()
    assert not chest.heartbeats.alive_since(asked)
    assert chest.heartbeats.alive_since(chest.clock.monotonic())


async def test_an_agent_that_registers_again_waits_for_word_of_what_it_holds() -> None:
    chest = Chest()
    await chest.heartbeats.register()
    chest.clock.advance(10.5)
    chest.held = [Held(1, 1)]
    chest.line.error = UnknownAgent("who are you?")
    await chest.beat()
    assert not chest.heartbeats.alive()
    chest.line.error = None
    await chest.beat()
    assert chest.heartbeats.alive()


async def test_blocks_of_hosts_with_a_pace_that_came_too_late_go_back(tmp_path: Path) -> None:
    """Others are kept: doing a page twice does no harm, asking a host twice does."""
    clock = ManualClock()
    holding = HeldBlocks(clock.monotonic)
    workspace = AgentFolder(tmp_path)
    workspace.open()
    client = cast("CenterClient", Line(clock))
    leaser = Leaser(
        "a", ("http",), client, holding, workspace, AgentSettings(),
        lambda: None, lambda _: False, clock, Random(1),
    )  # fmt: skip
    body = msgspec.msgpack.encode([Work(1, "http://a.example/")])
    runs = {"r": RunSettings()}
    late = LeaseReply([Leased(1, 1, "r", 1, body)], runs, [Pace("a.example", 1.0, 1)])
    await leaser.take(late, 0.0)
    assert (holding.gate.waiting, holding.take_returns()) == (0, [Held(1, 1)])
    await leaser.take(LeaseReply([Leased(2, 1, "r", 1, body)], runs), 0.0)
    assert holding.queued == 1


class Patient(Line):
    """A line on which a call that takes too long is given up, as the real client does it."""

    def __init__(self, clock: ManualClock) -> None:
        super().__init__(clock)
        self.sent: list[float] = []
        self.given_up = 0

    async def register(self, _message: Register) -> Registered:
        return Registered(3.0, 30.0, "c", "0", 11.0)

    async def heartbeat(self, beat: Heartbeat, seconds: float) -> HeartbeatReply:
        self.sent.append(self._clock.monotonic())
        if self.takes > seconds:
            await self._clock.sleep(seconds)
            self.given_up += 1
            raise CenterUnreachable("no answer in time")
        return await super().heartbeat(beat, seconds)


async def beat_for(seconds: float, takes: float) -> Patient:
    chest = Chest()
    line = Patient(chest.clock)
    line.takes = takes
    chest.heartbeats._client = cast("CenterClient", line)
    running = asyncio.ensure_future(chest.heartbeats.run())
    await chest.clock.pass_time(seconds)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    return line


async def test_a_line_that_is_only_slow_keeps_its_connection() -> None:
    """Fault 21: answers after 6 s, which is 3 s of delay each way."""
    line = await beat_for(120.0, takes=6.0)
    assert line.given_up == 0
    assert max(after - before for before, after in pairwise(line.sent)) < 8.0


async def test_a_dead_line_is_left_in_time_for_another_beat() -> None:
    """Fault 28: the beat that hangs is given up, and the next one is sent, before a center that
    heard the one before it may think us dead."""
    line = await beat_for(120.0, takes=1000.0)
    assert line.given_up > 10
    heard = 3.0  # before the one that hangs
    assert all(after - before + heard < 11.0 for before, after in pairwise(line.sent))
