"""An agent whose credential was revoked ends and says why; one that meets a center which does
not know it waits for a better moment (fault 65)."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from random import Random

import pytest

from skep.center.http.authentication import Role
from skep.cli.terminal.exit_codes import ExitCode
from skep.errors import Unauthorized
from skep.model.fleet.agent import Registration
from skep.runtime.clock import SystemClock
from skep.testing.fleet import running_agents, tell
from skep.testing.grounds.centers import running_center
from skep.testing.polling import until
from skep.testing.private import free_port
from skep.testing.processes import AgentProcess
from skep.wire.client import CenterClient
from skep.wire.messages import Register

SECONDS = 30.0


async def test_a_revoked_agent_ends_with_the_reason(tmp_path: Path) -> None:
    """Fault 65: by the center that knows the credential; with exit code 4, soon, for good."""
    folder = tmp_path / "a1"
    (folder / "agent").mkdir(parents=True)
    (folder / "agent" / "agent-id").write_text("a1\n")
    async with running_center(tmp_path / "center", center_heartbeat_every=0.3) as center:
        token = tmp_path / "token"
        token.write_text(await center.services.auth.issue(Role.AGENT, "a1"))
        agent = AgentProcess(folder, [center.url], token)
        try:
            await asyncio.to_thread(agent.start)
            began = time.monotonic()
            answer = await center.admin.post("/api/v1/agents/a1/revoke")
            assert answer.status == 200, answer.content
            code = await asyncio.to_thread(agent.wait, SECONDS)
            seconds = time.monotonic() - began
        finally:
            await asyncio.to_thread(agent.kill)
        said = folder.glob("*.log")
        words = "".join(file.read_text() for file in said)
    assert code == ExitCode.DENIED
    assert words.rstrip().endswith("the token was revoked; ask for a new one (revoked)"), words
    tell("65", agent_ends_after=seconds)
    assert seconds < SECONDS / 2


async def test_a_center_that_does_not_know_it_ends_no_agent(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Another center behind the same address says 401; when the right one is back, all is well."""
    port = free_port()
    quick = {"center_port": port, "center_heartbeat_every": 0.1}
    async with running_center(tmp_path / "right", **quick) as right:
        token, url = right.agent.token, right.url
        agents = running_agents(1, [url], token, tmp_path / "agents")
        (agent,) = await agents.__aenter__()
        await until(lambda: agent.heartbeats.beats > 0)
    try:
        async with running_center(tmp_path / "wrong", **quick):
            await until(lambda: "this center does not know the token" in caplog.text)
        beats = agent.heartbeats.beats
        async with running_center(tmp_path / "right", **quick):
            await until(lambda: agent.heartbeats.beats > beats)
    finally:
        await agents.__aexit__(None, None, None)


async def test_the_next_call_goes_to_another_center_when_one_does_not_know_us(
    tmp_path: Path,
) -> None:
    """Of two addresses one belongs to another server now: the other one is good enough."""
    async with (
        running_center(tmp_path / "wrong") as wrong,
        running_center(tmp_path / "right") as right,
        CenterClient([wrong.url, right.url], right.agent.token, SystemClock(), Random(1)) as client,
    ):
        registration = Register(Registration("a1", "one"))
        with pytest.raises(Unauthorized):
            await client.register(registration)
        assert (await client.register(registration)).session == 1
