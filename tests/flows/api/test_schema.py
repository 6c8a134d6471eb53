"""The API against its own description, by a fuzzer that reads nothing else (fault 73)."""

from __future__ import annotations

import asyncio
import os
import re
import sys
from pathlib import Path
from typing import Any

import jsonschema_rs
import msgspec
import pytest

from skep.access import login, passwords
from skep.center.api.monitoring import logs
from skep.center.app import api_table
from skep.center.http.openapi import describe, operation_id
from skep.jobs.runs import run_control
from skep.lanes.lease_calls import LeaseCalls
from skep.testing.grounds.centers import RunningCenter, running_center

#: Texts of the languages that the description names as formats.
FORMATS = Path(__file__).with_name("fuzz_formats.py")
#: Cases that the fuzzer makes up for each operation, beside those of the examples and the bounds.
EXAMPLES = 3
MANY_EXAMPLES = 20
#: There are no agents to wait for, and the fuzzer tries many wrong tokens.
PATIENT: dict[str, Any] = {"center_allocate_wait": 0.01, "center_wrong_tokens": 100_000}
#: Input that no schema can exclude, by operation, with the reason: ten at most. Their examples
#: are accepted all the same (test_api_examples.py), and every other check is on for them.
NOT_IN_A_SCHEMA = {
    "set_job": "a job document is checked as a whole: code, cron lines, sinks, what fits together",
    "open_run": "settings hold selectors, patterns and proxies, and some need each other",
    "start_driver": "settings hold selectors, patterns and proxies, and some need each other",
    "add_requests": "the scheme must be one of a downloader, the host one that IDNA can encode",
    "submit_requests": "the scheme must be one of a downloader, the host one that IDNA can encode",
    "save_checkpoint": "the scheme must be one of a downloader, the host one that IDNA can encode",
    "preview_placement": "one of `remove` and `add` is needed, with names of known agents",
    "set_alert_rule": "a rule is checked as a whole: which fields and values fit together",
    "get_series": "the start must be before the end, and names are those of known series",
    "start_operation": "each resource has acts of its own, and some need a confirmation",
    "report_blocks": "outcomes point into the frames of the same report, and counts must add up",
}
_URI = {"uri": "nosuch://a/"}
_SETTINGS = {"settings": {"downloader": "nosuch"}}
#: One input for each of them that its schema allows and the center refuses: path and body.
WITNESSES: dict[str, tuple[str, Any]] = {
    "set_job": ("/api/v1/jobs/j1", {"schedule": {"cron": "61 * * * *"}}),
    "open_run": ("/api/v1/runs/r2", _SETTINGS),
    "start_driver": ("/requestqueue/r2/driver", _SETTINGS),
    "add_requests": ("/api/v1/runs/r1/requests", [_URI]),
    "submit_requests": ("/requestqueue/r1", [_URI]),
    "save_checkpoint": ("/requestqueue/r1/turn", {"driver": 0, "requests": [_URI]}),
    "preview_placement": ("/api/v1/placement/preview", None),
    "set_alert_rule": (
        "/api/v1/alert-rules/slow",
        {"measure": "failure_rate", "threshold": 0.5, "series": "latency"},
    ),
    "get_series": ("/api/v1/series?name=requests.done&from=2&to=1", None),
    "start_operation": ("/api/v1/operations", {"resource": "pages", "act": "retry"}),
    "report_blocks": ("/node/block", {"agent": "a1", "blocks": [[1, 1, [[1, "nosuch"]]]]}),
}
#: How bad data is refused: as schemathesis expects it, by a bound on sizes, or as a protocol
#: that is not supported. Every check is on unless it is switched off here.
CONFIGURATION = """
[checks]
enabled = true

[checks.negative_data_rejection]
expected-statuses = [400, 401, 403, 404, 405, 406, 409, 413, 414, 415, 422, 426, 428, 429]
"""
EXCEPTION = """
[[operations]]
include-operation-id = "{name}"
checks.positive_data_acceptance.enabled = false
"""


def configuration() -> str:
    return CONFIGURATION + "".join(EXCEPTION.format(name=name) for name in NOT_IN_A_SCHEMA)


async def fuzz(
    center: RunningCenter, folder: Path, token: str, *paths: str, examples: int = EXAMPLES
) -> str:
    """Runs schemathesis as a user would, with every check; returns what it printed."""
    (folder / "schemathesis.toml").write_text(configuration())
    command = [
        *(sys.executable, "-m", "schemathesis.cli", "run", f"{center.url}/openapi.json"),
        *("-H", f"Authorization: Bearer {token}", *paths),
        *("--max-examples", str(examples), "--generation-deterministic", "--no-color"),
        *("--phases", "examples,coverage,fuzzing,stateful"),
        *("--suppress-health-check", "all", "--continue-on-failure"),
    ]
    process = await asyncio.create_subprocess_exec(
        *command,
        cwd=folder,
        env={**os.environ, "SCHEMATHESIS_HOOKS": str(FORMATS)},
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


async def people(folder: Path, monkeypatch: pytest.MonkeyPatch, examples: int) -> None:
    # The fuzzer plays a driver that ignores commands; waiting for it would gain nothing.
    monkeypatch.setattr(run_control, "LONGEST", 0.05)
    # No line arrives for which a follower could wait.
    monkeypatch.setattr(logs, "LONGEST_WAIT", 0.05)
    # Hundreds of passwords are hashed, most of them wrong.
    monkeypatch.setattr(login, "WRONG_HERE", 100_000)
    monkeypatch.setattr(login, "WRONG_EVERYWHERE", 100_000)
    cost = passwords.ScryptCost
    monkeypatch.setattr(passwords, "ScryptCost", lambda *of: cost(*of) if of else cost(4, 1, 1))
    async with running_center(folder / "center", **PATIENT) as center:
        await center.open_run("r1")
        await center.put("r1", ["http://a/", "http://b/"])
        # A stream of events has no end; test_events.py calls it.
        paths = ("--exclude-path-regex", "^/(node/|api/v1/events)")
        output = await fuzz(center, folder, center.admin.token, *paths, examples=examples)
        judge(output, operations=80)
        assert (await center.ledger()).unaccounted == 0


async def agents(folder: Path, monkeypatch: pytest.MonkeyPatch, examples: int) -> None:
    lease = LeaseCalls.lease

    async def soon(self: LeaseCalls, agent: str, want: int, wait: float, *more: Any) -> Any:
        return await lease(self, agent, want, min(wait, 0.05), *more)

    # The agent of an example is there and asks for work; the fuzzer does not wait 30 s for it.
    monkeypatch.setattr(LeaseCalls, "lease", soon)
    async with running_center(folder / "center", **PATIENT) as center:
        await center.open_run("r1")
        await center.put("r1", ["http://a/", "http://b/"])
        paths = ("--include-path-regex", "^/node/")
        output = await fuzz(center, folder, center.agent.token, *paths, examples=examples)
        judge(output, operations=9)
        assert (await center.ledger()).accepted == 2


async def test_the_api_of_people_keeps_to_its_description(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Fault 73: no 5xx, no undocumented status, every answer fits its schema; C8.
    S13: what a schema allows is accepted, with every check of the fuzzer on."""
    await people(tmp_path, monkeypatch, EXAMPLES)


async def test_the_api_of_agents_keeps_to_its_description(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Fault 73, S13: JSON as agents may send it, with an agent's token; C8."""
    await agents(tmp_path, monkeypatch, EXAMPLES)


@pytest.mark.slow
async def test_the_api_of_people_keeps_to_its_description_for_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Fault 73, S13: more cases."""
    await people(tmp_path, monkeypatch, MANY_EXAMPLES)


@pytest.mark.slow
async def test_the_api_of_agents_keeps_to_its_description_for_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Fault 73, S13: more cases."""
    await agents(tmp_path, monkeypatch, MANY_EXAMPLES)


def test_few_operations_refuse_what_their_schema_allows() -> None:
    """S13: ten at most, each an operation that is there and has a witness. Two paths of one
    operation (`submit_requests` is the older one of `add_requests`) have one handler."""
    handlers = {operation_id(row): row.handler for row in api_table()}
    assert len({handlers[name] for name in NOT_IN_A_SCHEMA}) <= 10
    assert set(NOT_IN_A_SCHEMA) == set(WITNESSES)


async def test_what_is_not_in_a_schema_is_refused_with_a_sentence(tmp_path: Path) -> None:
    """S13: every entry of the table is needed: its schema allows the witness, the center refuses
    it as input. An entry whose schema has learnt to say so goes."""
    rows = {operation_id(row): row for row in api_table()}
    document = msgspec.json.decode(msgspec.json.encode(describe(list(rows.values()))))
    async with running_center(tmp_path / "center") as center:
        await center.open_run("r1")
        await center.admin.put("/api/v1/jobs/j1", {"requests": ["http://a/"]})
        for name, (path, body) in WITNESSES.items():
            row = rows[name]
            if body is not None:
                content = document["paths"][row.path][row.method.lower()]["requestBody"]["content"]
                schema = {**content["application/json"]["schema"]}
                jsonschema_rs.validate({"components": document["components"], **schema}, body)
            caller = center.agent if path.startswith("/node/") else center.admin
            answer = await caller.send(row.method, path, *_sent(body))
            assert answer.status == 400, (name, answer.status)
            assert answer.problem().detail, name


def _sent(body: Any) -> tuple[Any, ...]:
    if body is None:
        return ()
    return msgspec.json.encode(body), {"Content-Type": "application/json"}
