"""The examples of the API's description, sent as they are to a real center (U1).

One center, one story: a run, its requests, an agent, a job, an application. What a call of the
story needs is made by an earlier one, with its own example.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

import msgspec

from skep.center.app import api_table
from skep.center.http.authentication import Role
from skep.center.http.endpoint import Endpoint
from skep.center.http.openapi import describe, operation_id
from skep.testing.grounds.centers import Answer, Caller, RunningCenter, running_center

TABLE = {operation_id(row): row for row in api_table()}
PAGE: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(describe(list(TABLE.values()))))
#: Sent first, in this order: others need what they make.
FIRST = (
    *("open_run", "submit_requests", "register_agent", "set_job", "start_driver"),
    *("dispatch_blocks", "lease_blocks", "send_heartbeat", "report_blocks", "return_blocks"),
    *("read_ended_requests", "save_checkpoint", "list_finished_requests", "run_job"),
    "create_user",
)
#: Sent last: they end what others need.
LAST = (
    *("change_run", "end_driver", "change_job", "disable_job", "enable_job", "delete_job"),
    *("clear_site", "command_agent", "clean_storage", "delete_user", "delete_user_group"),
)
#: Operations whose example names what this center does not have: the answer, and what is missing.
ABSENT = {
    "send_instance_log": (404, "an application"),
    "get_package": (404, "an application"),
    "get_instance_log": (404, "an application"),
    "restart_instance": (404, "an application"),
    "stop_instance": (404, "an application"),
    "get_failure_group": (404, "failures of that group, whose name is a digest"),
    "acknowledge_alert": (404, "an alert"),
    "mute_alert": (404, "an alert"),
    "get_kept_failure_group": (404, "failures of that group, whose name is a digest"),
    "resolve_failure_group": (404, "failures of that group, whose name is a digest"),
    "ignore_failure_group": (404, "failures of that group, whose name is a digest"),
    "reopen_failure_group": (404, "failures of that group, whose name is a digest"),
    "revoke_token": (404, "a token of that id, which is a digest"),
    "end_session": (404, "a session of that id, which is a digest"),
    "set_own_password": (409, "a user who calls, not a token"),
    "join_agent": (409, "a name that no agent has yet"),
    "change_run_deliveries": (409, "a sink"),
    "get_operation": (404, "an operation"),
    "cancel_operation": (404, "an operation"),
    "get_operation_file": (404, "an operation"),
}


def path_of(row: Endpoint) -> str:
    found = PAGE["paths"][row.path][row.method.lower()]["parameters"]
    path, query = row.path, {}
    for one in found:
        if one["in"] == "path":
            path = path.replace(f"{{{one['name']}}}", quote(str(one["example"]), safe="@"))
        else:
            query[one["name"]] = _text(one["example"])
    return f"{path}?{urlencode(query, doseq=True)}" if query else path


def _text(value: Any) -> str | list[str]:
    if isinstance(value, list):
        return [str(one) for one in value]
    return msgspec.json.encode(value).decode() if isinstance(value, bool) else str(value)


async def send(caller: Caller, row: Endpoint) -> Answer:
    found = PAGE["paths"][row.path][row.method.lower()]
    content = found.get("requestBody", {}).get("content", {}).get("application/json", {})
    body = msgspec.json.encode(content["example"]) if content else None
    headers = {"Content-Type": "application/json"} if content else {}
    return await caller.send(row.method, path_of(row), body, headers)


async def callers(center: RunningCenter) -> dict[Role, Caller]:
    return {
        Role.AGENT: center.agent,
        Role.JOIN: await center.caller(Role.JOIN),
        Role.PUBLIC: center.anyone,
    }


def in_order() -> list[str]:
    others = [name for name in TABLE if name not in FIRST and name not in LAST]
    return [*FIRST, *others, *LAST]


async def test_every_example_is_accepted(tmp_path: Path) -> None:
    """U1: an example that a reader copies works; 0 are refused as input."""
    async with running_center(tmp_path / "center") as center:
        await center.archive_pages(1, "books")
        by_role = await callers(center)
        for name in in_order():
            row = TABLE[name]
            answer = await send(by_role.get(row.role, center.admin), row)
            expected, _ = ABSENT.get(name, (row.status, ""))
            assert answer.status == expected, (name, answer.status, answer.content[:500])
            if name == "submit_requests":
                await center.dispatched()
            if name == "change_run":  # its example pauses
                assert (await center.admin.post("/api/v1/runs/books/continue")).status == 200
