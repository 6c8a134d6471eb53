"""Words about runs: what the command line says of them, and what an agent does with them (R2)."""

from __future__ import annotations

from pathlib import Path
from random import Random

import msgspec
import pytest

from skep.agent.agent_folder import AgentFolder
from skep.agent.work.held_blocks import HeldBlocks
from skep.agent.work.leasing import Leaser
from skep.cli.terminal import command_outcome
from skep.cli.terminal.exit_codes import ExitCode
from skep.downloaders.libcurl.host_queue import HostQueue
from skep.model.block import Leased
from skep.model.request import Work
from skep.model.run import RunSettings
from skep.settings import AgentSettings
from skep.testing.clock import ManualClock
from skep.wire.api.runs import Reached
from skep.wire.client import CenterClient
from skep.wire.messages import LeaseReply


def one(kind: str, name: str, seconds: float | None) -> Reached:
    return Reached("r", kind, name, seconds is not None, seconds)


def test_acknowledgements_are_counted() -> None:
    """R2: `2 agents and 1 spider acknowledged in 0.4 s`; the exit code is 0."""
    reached = [one("agent", "a", 0.1), one("agent", "b", 0.2), one("spider", "c1", 0.41)]
    assert command_outcome.in_words(reached, 5) == "2 agents and 1 spider acknowledged in 0.4 s"
    assert command_outcome.exit_of(reached, 5) is ExitCode.OK


def test_missing_acknowledgements_are_named() -> None:
    reached = [one("agent", "a", 0.1), one("generators", "c1", None)]
    said = command_outcome.in_words(reached, 5)
    sent = "sent to 1 agent and generators"
    assert said == f"{sent}; 1 of 2 did not acknowledge within 5 s: generators c1"
    assert command_outcome.exit_of(reached, 5) is ExitCode.TIMED_OUT
    assert command_outcome.in_words(reached, 0) == f"{sent}; not waiting for acknowledgements"
    assert command_outcome.exit_of(reached, 0) is ExitCode.OK
    assert command_outcome.in_words([], 5) == "no process to notify"


def test_a_gate_gives_back_what_has_not_begun() -> None:
    """What runs goes on; a host whose queue was emptied takes new ones as before."""
    gate: HostQueue[str] = HostQueue(1, 0.0)
    for item in ("a1", "a2"):
        gate.offer("a", item)
    gate.offer("b", "b1")
    assert gate.take(0.0) == "a1"
    assert sorted(gate.withdraw(lambda _: True)) == ["a2", "b1"]
    assert gate.take(0.0) is None
    gate.offer("b", "b2")
    assert gate.take(0.0) == "b2"
    gate.offer("a", "a3")
    assert gate.take(0.0) is None, "a1 still has its place"
    gate.leave("a", 0.0)
    assert gate.take(0.0) == "a3"


def test_a_gate_with_a_delay_forgets_nothing_else() -> None:
    gate: HostQueue[str] = HostQueue(2, 5.0)
    for name in "abc":
        gate.offer(name, f"{name}1")
        assert gate.take(0.0) == f"{name}1"
        gate.offer(name, f"{name}2")
    assert gate.withdraw(lambda item: item == "b2") == ["b2"]
    assert [gate.take(5.0), gate.take(5.0), gate.take(5.0)] == ["a2", "c2", None]


@pytest.mark.parametrize("run", ["r", None], ids=["pause", "drain"])
async def test_a_block_that_was_on_its_way_when_its_run_was_paused(
    tmp_path: Path, run: str | None
) -> None:
    """R2: leased before the pause, arrived after it: given back and not begun."""
    clock = ManualClock()
    holding, workspace = HeldBlocks(clock.monotonic), AgentFolder(tmp_path)
    workspace.open()
    async with CenterClient(["http://127.0.0.1:9"], "", clock, Random(1)) as client:
        leaser = Leaser(
            "a", ("http",), client, holding, workspace, AgentSettings(),
            lambda: None, lambda _: True, clock, Random(1),
        )  # fmt: skip
        body = msgspec.msgpack.encode([Work(1, "http://a/")])
        asked = clock.monotonic()
        clock.advance(1.0)
        leaser.refuse(run)
        reply = LeaseReply([Leased(1, 1, "r", 1, body)], {"r": RunSettings()})
        await leaser.take(reply, asked)
        assert (holding.blocks, holding.queued) == (1, 0), "held until it is given back"
        clock.advance(1.0)
        later = LeaseReply([Leased(2, 1, "r", 1, body)], {"r": RunSettings()})
        await leaser.take(later, clock.monotonic())
        assert holding.queued == 1, "the run was continued"
