"""R7: an agent that lost who it was, with results on its disk, works on and says so."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from skep.model.fleet.agent import Vitals
from skep.testing.fleet import Fleet
from skep.testing.grounds.centers import running_center


async def test_an_agent_without_its_identity_delivers_what_it_downloads(tmp_path: Path) -> None:
    """R7, fault 18: kill -9 with results in the outbox, both files removed, a new start. The
    old reports are set aside, and everything is downloaded by the new identity."""
    async with Fleet(tmp_path, latency=0.05) as fleet:
        agent = await fleet.agent("a", {"SKEP_AGENT_CONCURRENCY": "8"})
        await fleet.offer(400)
        await fleet.until_done(20)
        await asyncio.to_thread(fleet.center.kill)
        outbox = agent.folder / "agent" / "outbox"
        await fleet.wait_for(lambda: any(outbox.glob("*.report")))
        await asyncio.to_thread(agent.kill)
        for name in ("agent-id", "session"):
            (agent.folder / "agent" / name).unlink()
        await asyncio.to_thread(fleet.center.start)
        await asyncio.to_thread(agent.start)
        await fleet.until_all_ended(60)
        balance = await fleet.check()
        assert balance.ledger.done == 400
        assert any("set aside" in line for line in agent.said())
        found: dict[str, Any] = await fleet.client.api.call("GET", "/api/v1/alerts", None, dict)
        kinds = {alert["kind"] for alert in found["items"]}
        assert "results_set_aside" in kinds


async def test_results_that_wait_too_long_are_an_alert(tmp_path: Path) -> None:
    """R7: told once, with their number and age."""
    async with running_center(tmp_path) as center:
        agent = center.hand_agent()
        await agent.register()
        for waited in (5.0, 61.0, 64.0):
            await agent.heartbeat(vitals=Vitals(outbox=7, outbox_age=waited))
        alerts = (await center.admin.get("/api/v1/alerts")).json()["items"]
        told = [alert for alert in alerts if alert["kind"] == "results_unsent"]
        assert [(one["subject"], one["times"]) for one in told] == [("a1", 1)]
        assert "7 results wait on its disk, the oldest for 61 s" in told[0]["detail"]
