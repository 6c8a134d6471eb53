"""S8: messages that are larger than any agent's, over real HTTP: refused at once, nothing kept."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

import pytest

from skep.center.http.authentication import Role
from skep.model.message_bounds import HELD_LIMIT
from skep.testing.grounds.centers import RunningCenter, archived, running_center
from skep.testing.grounds.refused_calls import center_with_one_request

TOO_LARGE = 2**63
HELD: dict[str, Any] = {
    "register": {"registration": {"id": "a1", "name": "a1"}, "holding": [[TOO_LARGE, 1]]},
    "heartbeat": {"agent": "a1", "holding": [[1, TOO_LARGE]]},
    "giveback": {"agent": "a1", "blocks": [[TOO_LARGE, 1]]},
    "block": {"agent": "a1", "blocks": [[TOO_LARGE, 1, []]]},
}


def archive_bytes(center: RunningCenter) -> int:
    folder = center.folder / "archive"
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())


@pytest.mark.parametrize("path", sorted(HELD))
async def test_ids_that_no_store_can_keep(tmp_path: Path, path: str) -> None:
    """S8: 2^63 is a problem of the caller, with a sentence; the center has no bug."""
    async with center_with_one_request(tmp_path) as center:
        agent = center.hand_agent()
        await agent.register()
        answer = await agent.call(path, HELD[path])
        assert answer.status == 400
        assert "9223372036854775807" in answer.problem().detail


async def test_a_heartbeat_with_a_million_blocks_is_refused_at_once(tmp_path: Path) -> None:
    """S8: other agents beat as if nothing had happened; the most that is taken is borne."""
    async with running_center(tmp_path) as center:
        hostile, other = center.hand_agent("a1"), center.hand_agent("a2")
        await hostile.register()
        await other.register()
        million = [[1, 1]] * 1_000_000
        began = time.monotonic()
        refusing = asyncio.create_task(
            hostile.call("heartbeat", {"agent": "a1", "holding": million})
        )
        await asyncio.sleep(0)
        await other.heartbeat()
        answer = await refusing
        assert answer.status == 400
        assert time.monotonic() - began < 5
        most = [[number, 1] for number in range(HELD_LIMIT)]
        taken = await hostile.call("heartbeat", {"agent": "a1", "holding": most})
        assert len(taken.json()["lost"]) == HELD_LIMIT


async def test_bytes_of_blocks_that_an_agent_does_not_have_are_not_kept(tmp_path: Path) -> None:
    """S8: no such block, another's block, an older token, a block that has ended."""
    async with center_with_one_request(tmp_path) as center:
        owner, other = center.hand_agent("a1"), center.hand_agent("a2")
        await owner.register()
        await other.register()
        await center.dispatched()
        (block,) = await owner.lease()
        good, _ = archived(block)
        for agent, number, token, verdict in (
            (owner, block.id + 1000, 1, "unknown"),
            (other, block.id, block.token, "stale"),
            (owner, block.id, block.token - 1, "stale"),
        ):
            before = archive_bytes(center)
            good.block, good.token = number, token
            assert await agent.report(good) == [verdict]
            assert archive_bytes(center) == before
        good.block, good.token = block.id, block.token
        assert await owner.report(good) == ["stored"]
        after = archive_bytes(center)
        assert after > before
        assert await owner.report(good) == ["duplicate"]
        assert archive_bytes(center) == after


@pytest.mark.parametrize("number", [2**63, 2**64 - 1, -(2**63) - 1, 2**200])
async def test_numbers_of_a_driver_that_no_store_can_keep(tmp_path: Path, number: int) -> None:
    """S8: the token of a spider is in the hands of user code."""
    async with running_center(tmp_path / "center") as center:
        driver = (await center.admin.post("/requestqueue/r/driver", {})).json()["driver"]
        spider = await center.caller(Role.DRIVER, "r")
        for path, message in (
            ("turn", {"driver": number}),
            ("turn", {"driver": driver, "blocks": [number]}),
            ("turn", {"driver": driver, "items": [[number, 0, {}]]}),
            ("turn", {"driver": driver, "items": [[1, number, {}]]}),
            ("end", {"driver": number, "state": "failed"}),
        ):
            answer = await spider.post(f"/requestqueue/r/{path}", message)
            assert answer.status == 400, (message, answer.content)
