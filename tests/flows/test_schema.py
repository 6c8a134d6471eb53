"""The API against its own description, by a fuzzer that reads nothing else (fault 73)."""

from __future__ import annotations

import asyncio
import re
import sys
from pathlib import Path
from typing import Any

import pytest

from skep.center import control
from skep.testing.centers import RunningCenter, running_center

EXAMPLES = 5
#: There are no agents to wait for, and the fuzzer tries many wrong tokens.
PATIENT: dict[str, Any] = {"center_allocate_wait": 0.01, "center_wrong_tokens": 100_000}
CHECKS = (
    "not_a_server_error",
    "status_code_conformance",
    "content_type_conformance",
    "response_headers_conformance",
    "response_schema_conformance",
    "negative_data_rejection",
    "missing_required_header",
    "unsupported_method",
    "allow_header_conformance",
    "ignored_auth",
)
#: How bad data is refused: as schemathesis expects it, or by the bound on URLs.
CONFIGURATION = """
[checks.negative_data_rejection]
expected-statuses = [400, 401, 403, 404, 405, 406, 409, 414, 415, 422, 428, 429]
"""


async def fuzz(center: RunningCenter, folder: Path, token: str, *paths: str) -> str:
    """Runs schemathesis as anybody would; returns what it printed."""
    (folder / "schemathesis.toml").write_text(CONFIGURATION)
    command = [
        *(sys.executable, "-m", "schemathesis.cli", "run", f"{center.url}/openapi.json"),
        *("-H", f"Authorization: Bearer {token}", *paths),
        *("--checks", ",".join(CHECKS), "--max-examples", str(EXAMPLES)),
        *("--phases", "coverage,fuzzing", "--generation-deterministic", "--no-color"),
        *("--suppress-health-check", "all", "--continue-on-failure"),
    ]
    process = await asyncio.create_subprocess_exec(
        *command,
        cwd=folder,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    output, _ = await process.communicate()
    return output.decode()


def judge(output: str, operations: int) -> None:
    assert "Failures:" not in output, output[:4000] + output[-4000:]
    assert "Errors:" not in output, output[:4000] + output[-4000:]
    tested = re.search(r"Tested: (\d+)", output)
    assert tested, output[:4000] + output[-4000:]
    assert int(tested[1]) >= operations, output[-3000:]


async def test_the_api_of_people_keeps_to_its_description(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Fault 73: no 5xx, no undocumented status, every answer fits its schema; C8."""
    # The fuzzer plays a driver that obeys nobody; nothing is won by waiting for it.
    monkeypatch.setattr(control, "LONGEST", 0.05)
    async with running_center(tmp_path / "center", **PATIENT) as center:
        await center.open_run("r1")
        await center.put("r1", ["http://a/", "http://b/"])
        paths = ("--exclude-path-regex", "^/node/")
        output = await fuzz(center, tmp_path, center.admin.token, *paths)
        judge(output, operations=20)
        assert (await center.ledger()).unaccounted == 0


async def test_the_api_of_agents_keeps_to_its_description(tmp_path: Path) -> None:
    """Fault 73: JSON as agents may send it, with an agent's token; C8."""
    async with running_center(tmp_path / "center", **PATIENT) as center:
        await center.open_run("r1")
        await center.put("r1", ["http://a/", "http://b/"])
        paths = ("--include-path-regex", "^/node/")
        output = await fuzz(center, tmp_path, center.agent.token, *paths)
        judge(output, operations=5)
        assert (await center.ledger()).accepted == 2
