"""Small files of an agent that are empty or damaged: named, and made good where that is safe."""

from __future__ import annotations

import asyncio
from pathlib import Path
from random import Random

import pytest

from skep.agent.agent_folder import agent_id
from skep.errors import ConfigurationError
from skep.runtime.clock import SystemClock
from skep.testing.fleet import Fleet

pytestmark = pytest.mark.fault


@pytest.mark.parametrize("data", [b"\xff\xfe\x00", b"a\x07b\n", b"x" * 65, "agent-\u00e4".encode()])
def test_a_garbage_agent_id_is_named(tmp_path: Path, data: bytes) -> None:
    """R9: one sentence with the path; the agent does not register with it again and again."""
    (tmp_path / "agent-id").write_bytes(data)
    with pytest.raises(ConfigurationError, match="agent-id"):
        agent_id(tmp_path, SystemClock(), Random(1))
    assert (tmp_path / "agent-id").read_bytes() == data


@pytest.mark.parametrize("data", [b"", b"\xff garbage"])
async def test_a_damaged_session_file_is_not_an_older_copy(tmp_path: Path, data: bytes) -> None:
    """R9: it is named, and the agent waits until the center has given up its last process."""
    async with Fleet(tmp_path) as fleet:
        agent = await fleet.agent("a")
        await asyncio.to_thread(agent.kill)
        (agent.folder / "agent" / "session").write_bytes(data)
        await asyncio.to_thread(agent.start)
        said = "\n".join(agent.said())
        assert f"{agent.folder / 'agent' / 'session'} is" in said
        await fleet.offer(20)
        await fleet.until_all_ended(60)
        assert len(await fleet.client.agents()) == 1
