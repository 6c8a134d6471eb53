"""An agent at work: real HTTP to a center's double, a toy downloader or the real one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from random import Random

import pytest

from skep.downloaders.registry import kinds as real_kinds
from skep.errors import CenterUnreachable, OldProtocol, StaleToken, Unauthorized
from skep.model.fleet.agent import Registration
from skep.model.request import Work
from skep.model.run import RunSettings
from skep.runtime.clock import SystemClock
from skep.settings import AgentSettings, EgressSettings
from skep.testing.doubles.center import CenterDouble, center_double
from skep.testing.doubles.toy_agent import (
    TOY_RUN,
    Start,
    ToyKind,
    build_agent,
    fill,
    running_agent,
    starter,
    toy_works,
)
from skep.testing.polling import until
from skep.testing.site import DemoSite
from skep.wire.client import CenterClient
from skep.wire.messages import Command, Heartbeat, LeaseAsk, Register

FAST = AgentSettings(
    concurrency=8, report_every=0.05, lease_wait=1.0, drain_seconds=1.0, idle_close=0.2
)


@pytest.fixture
async def center() -> AsyncIterator[CenterDouble]:
    async with center_double() as double:
        yield double


@pytest.fixture
def start(center: CenterDouble, tmp_path: Path) -> Start:
    return starter(center, tmp_path, FAST)


async def test_every_request_is_done_once_and_its_frames_arrive(
    center: CenterDouble, start: Start
) -> None:
    fill(center, blocks=20)
    toy = ToyKind(size=30)
    async with start(toy):
        await center.until(lambda: center.open_requests == 0)
    assert sorted(toy.started) == list(range(200))
    assert sorted(center.stored) == list(range(200))
    assert all(block.ended for block in center.blocks.values())
    bodies = {one: body.rstrip(b".") for (_, one), body in center.bodies.items()}
    assert bodies == {one: f"toy://x/{one}".encode() for one in range(200)}


async def test_the_downloader_never_idles_while_there_is_work(
    center: CenterDouble, start: Start
) -> None:
    """Blocks are leased ahead: the number of running downloads never falls below the
    agent's concurrency while the center has blocks."""
    fill(center, blocks=40, size=5)
    toy = ToyKind(seconds=0.02)
    after_each_round: list[int] = []
    async with start(toy) as agent:
        go_on = agent.pump._after_round

        def look() -> None:
            if center.ready:
                after_each_round.append(agent.holding.active)
            go_on()

        agent.pump._after_round = look
        await center.until(lambda: center.open_requests == 0)
    full = after_each_round.index(FAST.concurrency)
    assert set(after_each_round[full:]) == {FAST.concurrency}
    assert toy.most_active == FAST.concurrency


async def test_finished_blocks_travel_together(center: CenterDouble, start: Start) -> None:
    fill(center, blocks=60, size=2)
    async with start(ToyKind(seconds=0.001)):
        await center.until(lambda: center.open_requests == 0)
    assert len(center.reports) < 40
    assert max(len(report.blocks) for report in center.reports) > 1


async def test_a_slow_block_is_reported_in_parts(center: CenterDouble, start: Start) -> None:
    fill(center, blocks=1)
    toy = ToyKind()
    toy.held = {9}
    async with start(toy):
        await center.until(lambda: len(center.stored) == 9)
        assert not center.blocks[1].ended
        toy.let_go()
        await center.until(lambda: center.blocks[1].ended)
    assert center.stored[-1] == 9


async def test_beats_renew_what_is_held_and_tell_how_the_agent_is(
    center: CenterDouble, start: Start
) -> None:
    fill(center, blocks=1)
    toy = ToyKind()
    toy.held = None
    async with start(toy):
        await center.until(lambda: any(beat.holding for beat in center.beats))
        beat = next(beat for beat in center.beats if beat.holding)
        toy.let_go()
    assert [held.block for held in beat.holding] == [1]
    assert beat.vitals.active == FAST.concurrency
    assert beat.vitals.free_memory > 0
    assert beat.vitals.processes > 1


async def test_a_block_that_the_center_took_away_is_dropped_and_counted(
    center: CenterDouble, start: Start
) -> None:
    fill(center, blocks=1)
    toy = ToyKind()
    toy.held = None
    async with start(toy) as agent:
        await until(lambda: agent.holding.active == 8)
        center.lost.add(1)
        await until(lambda: agent.holding.lost == 1)
        toy.let_go()
        assert (agent.holding.blocks, agent.holding.discarded) == (0, 8)
    assert len(toy.started) == 8
    assert center.stored == []


async def test_a_stale_verdict_drops_the_block(center: CenterDouble, start: Start) -> None:
    """Fault 30: an agent that slept past its lease is refused, and forgets."""
    fill(center, blocks=1)
    toy = ToyKind()
    toy.held = {9}
    async with start(toy) as agent:
        await until(lambda: agent.holding.active == 1)
        center.blocks[1].token += 1
        await until(lambda: agent.holding.lost == 1)
        toy.let_go()
        assert agent.holding.blocks == 0


async def test_an_unknown_kind_fails_every_request_with_its_reason(
    center: CenterDouble, start: Start
) -> None:
    """D6: a request of an unknown kind ends, and its log says why."""
    center.add("r", toy_works(0, 5), RunSettings(downloader="gopher"))
    async with start(ToyKind()):
        await center.until(lambda: center.open_requests == 0)
    outcomes = list(center.outcomes())
    assert {outcome.failure for outcome in outcomes} == {"code"}
    assert "gopher" in outcomes[0].detail
    assert "toy" in outcomes[0].detail


async def test_a_drain_reports_what_ended_and_gives_back_the_rest(
    center: CenterDouble, start: Start
) -> None:
    """Fault 47: nothing is orphaned, and the stop does not take longer than it may."""
    fill(center, blocks=3)
    toy = ToyKind()
    toy.held = {2, 3}
    began = asyncio.get_running_loop().time()
    async with start(toy, AgentSettings(concurrency=4, report_every=5, drain_seconds=0.3)) as agent:
        await until(lambda: agent.holding.active == 2 and len(toy.started) >= 4)
    assert asyncio.get_running_loop().time() - began < 15
    given = {held.block for message in center.returned for held in message.blocks}
    assert given | {b.id for b in center.blocks.values() if b.ended} == {1, 2, 3}
    assert 1 in given
    assert {2, 3}.isdisjoint(center.stored)
    ended = sum(len(block.outcomes) for block in center.blocks.values())
    assert ended == len(toy.started) - 2


async def test_work_given_back_is_done_by_the_next_agent_without_repeats(
    center: CenterDouble, start: Start
) -> None:
    fill(center, blocks=2)
    first, second = ToyKind(), ToyKind()
    first.held = {5}
    async with start(first, AgentSettings(concurrency=4, drain_seconds=0.0)) as agent:
        await until(lambda: 5 in first.started)
        await until(lambda: agent.holding.active == 1)
    async with start(second):
        await center.until(lambda: all(block.ended for block in center.blocks.values()))
    assert sorted(center.stored) == list(range(20))
    assert set(first.started) & set(second.started) == {5}


async def test_a_restarted_agent_is_the_same_agent(center: CenterDouble, start: Start) -> None:
    """Fault 10: registering again does not make a second agent."""
    for _ in range(2):
        async with start(ToyKind()):
            await center.until(lambda: len(center.beats) > 0)
            center.beats.clear()
    assert len({registration.id for registration in center.registrations}) == 1


async def test_an_agent_that_the_center_forgot_registers_again(
    center: CenterDouble, start: Start
) -> None:
    async with start(ToyKind()):
        await center.until(lambda: len(center.beats) > 1)
        center.known = False
        await center.until(lambda: len(center.registrations) == 2)
        await center.until(lambda: center.known)


async def test_allocations_outlive_a_restart_until_they_are_released(
    center: CenterDouble, start: Start
) -> None:
    """A4, fault 18: resumed ones are there again, released ones are not."""
    fill(center, blocks=1)
    center.add("other", toy_works(100, 1), TOY_RUN)
    async with start(ToyKind()):
        await center.until(lambda: center.open_requests == 0)
    async with start(ToyKind()) as agent:
        await center.until(lambda: center.listeners == 1)
        assert set(agent.workspace.names()) == {"r", "other"}
        await center.push(Command("release", "other"))
        await until(lambda: set(agent.workspace.names()) == {"r"})
    async with start(ToyKind()) as agent:
        await until(lambda: agent.heartbeats.beats > 0)
        assert agent.workspace.names() == ["r"]
        center.add("r", toy_works(50, 1), TOY_RUN)
        await center.until(lambda: center.open_requests == 0)
        assert agent.workspace.settings_of("r") == TOY_RUN


async def test_an_ended_run_is_forgotten_with_a_heartbeat(
    center: CenterDouble, start: Start, tmp_path: Path
) -> None:
    """E7: no release was ever sent; the file goes, also while a download is under way."""
    center.add("ended", toy_works(1, 1), TOY_RUN)
    center.add("busy", toy_works(100, 1), TOY_RUN)
    toy = ToyKind()
    toy.held = {100}
    async with start(toy) as agent:
        await until(lambda: set(agent.workspace.names()) == {"ended", "busy"})
        center.over.add("busy")
        folder = tmp_path / "runs"
        await until(lambda: len(list(folder.glob("*.run"))) == 1)
        assert agent.workspace.remembers("busy")
        toy.let_go()
        await center.until(lambda: center.open_requests == 0)
        await until(lambda: agent.workspace.names() == ["ended"])
        center.over.add("ended")
        await until(lambda: not list(folder.iterdir()))


async def test_a_paused_run_goes_back_to_the_center(center: CenterDouble, start: Start) -> None:
    """A2: what runs may end, what has not begun is given back."""
    fill(center, blocks=2)
    toy = ToyKind()
    toy.held = None
    async with start(toy) as agent:
        await until(lambda: agent.holding.active == 8 and agent.holding.blocks == 2)
        center.runs.clear()  # blocks without settings are handed back and not begun
        await center.push(Command("pause", "r"))
        await until(lambda: agent.holding.queued == 0)
        toy.let_go()
        await center.until(lambda: len(center.stored) == 8)
        await center.until(lambda: sum(len(m.blocks) for m in center.returned) >= 2)


async def test_the_exit_command_ends_the_agent(center: CenterDouble, tmp_path: Path) -> None:
    async with CenterClient([center.url], center.token, SystemClock(), Random(1)) as client:
        agent = build_agent(client, tmp_path, FAST, {"toy": ToyKind()})
        center.pushed.append(Command("exit"))
        async with asyncio.timeout(5):
            await agent.run()
    assert center.asks


async def test_idle_downloaders_are_closed_and_opened_again(
    center: CenterDouble, start: Start
) -> None:
    """A3: one downloader per run, closed when unused for a time."""
    toy = ToyKind()
    async with start(toy) as agent:
        fill(center, blocks=1)
        await center.until(lambda: center.open_requests == 0)
        await until(lambda: toy.closed == 1)
        center.add("r", toy_works(500, 1), TOY_RUN)
        await center.until(lambda: center.open_requests == 0)
        assert len(agent.downloaders) == 1
    assert toy.opened == [("r", TOY_RUN)] * 2


async def test_a_downloader_that_dies_is_replaced_and_its_block_left_to_its_lease(
    center: CenterDouble, start: Start
) -> None:
    """Fault 34: the agent goes on with everything else."""
    fill(center, blocks=1)
    toy = ToyKind()
    toy.held = {3, 4}
    async with start(toy) as agent:
        await until(lambda: agent.holding.active == 2)
        await toy.newest.close()  # as if by itself
        await until(lambda: agent.holding.lost == 1)
        assert len(center.stored) == 8
        toy.held = set()
        center.add("r", toy_works(100, 5), TOY_RUN)
        await center.until(lambda: len(center.stored) == 13)
    assert len(toy.opened) == 2
    assert center.returned == []


async def test_a_wrong_token_is_a_clear_error_at_the_start(
    center: CenterDouble, tmp_path: Path
) -> None:
    async with CenterClient([center.url], "wrong", SystemClock(), Random(1)) as client:
        agent = build_agent(client, tmp_path, FAST, {"toy": ToyKind()})
        with pytest.raises(Unauthorized, match="does not know the token"):
            await agent.run()


async def test_a_token_that_fails_later_does_not_end_the_agent(
    center: CenterDouble, start: Start
) -> None:
    async with start(ToyKind()) as agent:
        await center.until(lambda: len(center.beats) > 1)
        center.fail("heartbeat", Unauthorized("not now"), times=2)
        center.fail("lease", Unauthorized("not now"))
        fill(center, blocks=1)
        await center.until(lambda: center.open_requests == 0)
        assert agent.holding.lost == 0


async def test_an_old_protocol_is_a_clear_error_at_the_start(
    center: CenterDouble, tmp_path: Path
) -> None:
    """Fault 44: a clear refusal."""
    center.protocols = ("7",)
    async with CenterClient([center.url], center.token, SystemClock(), Random(1)) as client:
        agent = build_agent(client, tmp_path, FAST, {"toy": ToyKind()})
        with pytest.raises(OldProtocol, match="upgrade the agent"):
            await agent.run()


async def test_a_result_larger_than_the_center_takes_fails_as_limit(
    center: CenterDouble, start: Start
) -> None:
    """Fault 37: rejected with a reason, and the results beside it are kept."""
    center.body_limit = 20_000
    toy = ToyKind(size=100)
    large = "toy://x/" + "a" * 30_000
    center.add("r", [*toy_works(0, 3), Work(9, large)], TOY_RUN)
    async with start(toy):
        await center.until(lambda: center.open_requests == 0)
    failures = {outcome.id: outcome.failure for outcome in center.outcomes()}
    assert failures == {0: "", 1: "", 2: "", 9: "limit"}


async def test_the_real_http_downloader_behind_the_agent(
    center: CenterDouble, tmp_path: Path
) -> None:
    """Bytes from a real site arrive as frames in the reports."""
    kinds = real_kinds(SystemClock(), Random(3), EgressSettings(allow=("127.0.0.0/8",)))
    async with DemoSite() as site:
        for first in range(0, 100, 20):
            works = [Work(n, f"{site.url}/page/{n}") for n in range(first, first + 20)]
            center.add("web", works, RunSettings(downloader="http"))
        async with running_agent([center.url], center.token, tmp_path, kinds, FAST):
            await center.until(lambda: center.open_requests == 0, seconds=20)
    assert {(o.status, o.failure) for o in center.outcomes()} == {(200, "")}
    assert all(len(body) > 100 for body in center.bodies.values())


async def test_the_client_moves_to_the_next_address_and_stays_there(
    center: CenterDouble,
) -> None:
    """Fault 15: a dead center costs one try."""
    async with center_double() as other:
        await other.down()
        other.token = center.token
        urls = [other.url, center.url]
        async with CenterClient(urls, center.token, SystemClock(), Random(1)) as client:
            await client.register(Register(Registration("a", "a")))
            assert client.address == center.url
            await client.heartbeat(Heartbeat("a"))
            await center.down()
            with pytest.raises(CenterUnreachable, match=r"127\.0\.0\.1"):
                await client.heartbeat(Heartbeat("a"))


async def test_errors_come_back_as_their_class(center: CenterDouble) -> None:
    center.fail("lease", StaleToken("block 4 is not yours"))
    async with CenterClient([center.url], center.token, SystemClock(), Random(1)) as client:
        with pytest.raises(StaleToken, match="block 4 is not yours"):
            await client.lease(LeaseAsk("a"))


async def test_an_address_without_a_center_is_named(center: CenterDouble) -> None:
    async with (
        DemoSite() as site,
        CenterClient([f"{site.url}/"], "t", SystemClock(), Random(1)) as client,
    ):
        with pytest.raises(CenterUnreachable, match="is the address right"):
            await client.call("GET", "/page/1", None, Heartbeat)
        assert b"<title>" in await client.call("GET", "/page/1", None, bytes)
