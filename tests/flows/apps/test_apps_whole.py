"""A failing application, from its document to its last line: a real center and agent (A8)."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from skep.embed.embedded import LocalAgent
from skep.runtime.clock import SystemClock
from skep.testing.grounds.centers import running_center
from skep.testing.polling import until

pytestmark = pytest.mark.needs("bwrap")

TELL = """#!/bin/sh
echo "for $1 with $KEY"
echo "no such table" >&2
exit 3
"""


async def test_a_failure_comes_back_with_its_code_and_last_line(tmp_path: Path) -> None:
    tool, secrets = tmp_path / "jobs" / "tool", tmp_path / "data" / "secrets"
    tool.mkdir(parents=True)
    secrets.mkdir(parents=True)
    (tool / "tell.sh").write_text(TELL)
    (tool / "tell.sh").chmod(0o755)
    (secrets / "key").write_text("hush\n")
    app = {
        "package": "tool",
        "command": ["./tell.sh", "you"],
        "restart": "never",
        "secrets": {"KEY": "key"},
    }
    flags = {"jobs_folder": str(tmp_path / "jobs"), "jobs_keep_every": 0.05}
    async with running_center(tmp_path / "data", **flags) as center:
        agent = LocalAgent(center.local, SystemClock(), Random(3))
        await agent.start()
        try:
            answer = await center.admin.put("/api/v1/jobs/tell", {"name": "tell", "app": app})
            assert answer.status == 200, answer.content
            run = (await center.admin.post("/api/v1/jobs/tell/run")).json()["run"]
            store = center.services.store
            found = await until(
                lambda: store.runs.get(run), lambda found: found.state != "running", seconds=60
            )
            assert found.state == "failed"
            assert "failed with exit code 3" in found.reason
            assert found.reason.endswith("its last line: no such table")
            log = (await center.admin.get(f"/api/v1/runs/{run}/instances/0/log")).json()["text"]
            assert log.splitlines() == ["for you with hush", "no such table"]
        finally:
            await agent.stop()
