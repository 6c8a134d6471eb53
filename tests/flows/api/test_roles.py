"""Who may do what: every route of the table, tried by every role. Real HTTP, real tokens."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest
import pytest_asyncio

from skep.center.app import api_table
from skep.center.http.authentication import Role
from skep.center.http.docs_page import POLICY
from skep.center.http.endpoint import Endpoint
from skep.center.http.server import CenterServer, check_bind
from skep.errors import ConfigurationError
from skep.settings import CenterSettings
from skep.testing.grounds.centers import Caller, RunningCenter, running_center

pytestmark = pytest.mark.asyncio(loop_scope="module")

TABLE = api_table()
#: Everything that answers without a token. A route that joins them must be added here.
PUBLIC = {"/livez", "/readyz", "/healthz", "/version", "/metrics", "/openapi.json", "/docs"}
#: Answers without a token, but needs a user name and a password or a link.
LOGIN = "/api/v1/login"
PEOPLE = (Role.VIEWER, Role.OPERATOR, Role.ADMIN)
#: What each role reaches, said here a second time and not read from the code.
REACH = {
    Role.VIEWER: {Role.PUBLIC, Role.VIEWER},
    Role.OPERATOR: {Role.PUBLIC, Role.VIEWER, Role.OPERATOR},
    Role.ADMIN: {Role.PUBLIC, Role.VIEWER, Role.OPERATOR, Role.ADMIN},
    Role.AGENT: {Role.PUBLIC, Role.AGENT},
    # Of some run, and none of those that are knocked at: tests/flows/jobs/test_jobs.py has its own.
    Role.DRIVER: {Role.PUBLIC},
    Role.JOIN: {Role.PUBLIC, Role.JOIN},
}
#: Routes that change something, with the least role that people need for them.
CHANGES = {
    ("POST", "/api/v1/runs/{run}/requests"): Role.OPERATOR,
    ("PUT", "/api/v1/alert-rules/{rule}"): Role.OPERATOR,
    ("DELETE", "/api/v1/alert-rules/{rule}"): Role.OPERATOR,
    ("POST", "/api/v1/alerts/acknowledge"): Role.OPERATOR,
    ("POST", "/api/v1/alerts/mute"): Role.OPERATOR,
    ("POST", "/api/v1/failure-groups/{group}/resolve"): Role.OPERATOR,
    ("POST", "/api/v1/failure-groups/{group}/ignore"): Role.OPERATOR,
    ("POST", "/api/v1/failure-groups/{group}/reopen"): Role.OPERATOR,
    ("POST", "/requestqueue/{identity}"): Role.OPERATOR,
    ("POST", "/requestqueue/{identity}/collected"): Role.OPERATOR,
    ("POST", "/requestqueue/{identity}/driver"): Role.OPERATOR,
    ("POST", "/requestqueue/{identity}/read"): Role.OPERATOR,
    ("POST", "/requestqueue/{identity}/turn"): Role.OPERATOR,
    ("POST", "/requestqueue/{identity}/end"): Role.OPERATOR,
    ("PUT", "/api/v1/sites/{host}"): Role.OPERATOR,
    ("DELETE", "/api/v1/sites/{host}"): Role.OPERATOR,
    ("PUT", "/api/v1/runs/{run}"): Role.OPERATOR,
    ("POST", "/api/v1/dispatches"): Role.OPERATOR,
    ("POST", "/api/v1/failures/retry"): Role.OPERATOR,
    ("POST", "/api/v1/failures/cancel"): Role.OPERATOR,
    ("POST", "/api/v1/failures/forget"): Role.OPERATOR,
    ("POST", "/api/v1/requests/cancel"): Role.OPERATOR,
    ("POST", "/api/v1/operations"): Role.OPERATOR,
    ("POST", "/api/v1/operations/{operation}/cancel"): Role.OPERATOR,
    ("POST", "/api/v1/storage/clean"): Role.ADMIN,
    ("POST", "/api/v1/runs/{run}/revive"): Role.OPERATOR,
    ("POST", "/api/v1/runs/{run}/restart"): Role.OPERATOR,
    ("POST", "/api/v1/runs/{run}/instances/{no}/restart"): Role.OPERATOR,
    ("POST", "/api/v1/runs/{run}/instances/{no}/stop"): Role.OPERATOR,
    ("POST", "/api/v1/runs/{run}/{verb}"): Role.OPERATOR,
    ("POST", "/api/v1/runs/{run}/deliveries/{verb}"): Role.OPERATOR,
    ("POST", "/api/v1/runs/{run}/rejected/retry"): Role.OPERATOR,
    ("PUT", "/api/v1/jobs/{job}"): Role.OPERATOR,
    ("DELETE", "/api/v1/jobs/{job}"): Role.OPERATOR,
    ("POST", "/api/v1/jobs/{job}/run"): Role.OPERATOR,
    ("POST", "/api/v1/jobs/{job}/enable"): Role.OPERATOR,
    ("POST", "/api/v1/jobs/{job}/disable"): Role.OPERATOR,
    ("POST", "/api/v1/jobs/{job}/{verb}"): Role.OPERATOR,
    ("POST", "/api/v1/agents/{agent}/{verb}"): Role.ADMIN,
    ("PUT", "/api/v1/agents/{agent}/labels"): Role.ADMIN,
    ("POST", "/api/v1/agent-tokens"): Role.ADMIN,
    ("POST", "/api/v1/join-tokens"): Role.ADMIN,
    ("POST", "/api/v1/tokens"): Role.ADMIN,
    ("DELETE", "/api/v1/tokens/{token_id}"): Role.ADMIN,
    ("PUT", "/api/v1/secrets/{secret}"): Role.ADMIN,
    ("DELETE", "/api/v1/secrets/{secret}"): Role.ADMIN,
    ("POST", "/api/v1/secret-rotations"): Role.ADMIN,
    ("POST", "/api/v1/login"): Role.PUBLIC,
    ("POST", "/api/v1/logout"): Role.VIEWER,
    ("PUT", "/api/v1/me/password"): Role.VIEWER,
    ("DELETE", "/api/v1/sessions/{session}"): Role.VIEWER,
    # Views of their own; to share one needs the role operator.
    ("PUT", "/api/v1/views/{view}"): Role.VIEWER,
    ("DELETE", "/api/v1/views/{view}"): Role.VIEWER,
    ("POST", "/api/v1/users"): Role.ADMIN,
    ("PATCH", "/api/v1/users/{user}"): Role.ADMIN,
    ("DELETE", "/api/v1/users/{user}"): Role.ADMIN,
    ("PUT", "/api/v1/users/{user}/password"): Role.ADMIN,
    ("POST", "/api/v1/users/{user}/link"): Role.ADMIN,
    ("DELETE", "/api/v1/users/{user}/sessions"): Role.ADMIN,
    ("PUT", "/api/v1/groups/{user_group}"): Role.ADMIN,
    ("DELETE", "/api/v1/groups/{user_group}"): Role.ADMIN,
}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def center(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[RunningCenter]:
    async with running_center(tmp_path_factory.mktemp("center")) as running:
        yield running


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def callers(center: RunningCenter) -> dict[Role, Caller]:
    await center.open_run("driven")
    subjects = {Role.DRIVER: "driven"}
    return {role: await center.caller(role, subjects.get(role, "")) for role in REACH}


def named(row: Endpoint) -> str:
    return f"{row.method} {row.path}"


def path_of(row: Endpoint) -> str:
    """Names that are there or not: permission comes first."""
    return re.sub(r"{(\w+)}", "1", row.path)


async def knock(caller: Caller, row: Endpoint) -> int:
    """With an empty body where one is taken: it is looked at after the token."""
    return (await caller.send(row.method, path_of(row))).status


@pytest.mark.parametrize("row", TABLE, ids=named)
async def test_without_a_token_only_health_answers(center: RunningCenter, row: Endpoint) -> None:
    """Fault 48: every route of the table, anonymously."""
    answer = await center.anyone.send(row.method, path_of(row))
    if row.path in PUBLIC:
        assert answer.status == 200
    elif row.path == LOGIN:
        assert answer.problem().code == "malformed", "its body is looked at"
    else:
        assert (answer.status, answer.problem().code) == (401, "unauthorized")


@pytest.mark.parametrize("row", TABLE, ids=named)
async def test_every_role_on_every_route(callers: dict[Role, Caller], row: Endpoint) -> None:
    """Faults 50, 65: unexpected allows 0, unexpected refusals 0."""
    for role, reach in REACH.items():
        status = await knock(callers[role], row)
        if row.role in reach:
            assert status not in {401, 403}, f"{role} is shut out"
        else:
            assert status == 403, f"{role} gets {status}"


async def test_the_table_says_the_roles_that_this_file_expects() -> None:
    """Fault 50: a route that changes something and is not listed here is a mistake."""
    changing = {
        (row.method, row.path): row.role
        for row in TABLE
        if row.method != "GET" and not row.path.startswith("/node/")
    }
    assert changing == CHANGES
    assert {row.path for row in TABLE if row.role is Role.PUBLIC} == {*PUBLIC, LOGIN}
    doors = {row.path: row.role for row in TABLE if row.path.startswith("/node/")}
    assert doors.pop("/node/join") is Role.JOIN
    assert set(doors.values()) == {Role.AGENT}


async def test_every_route_of_the_program_is_in_the_table(center: RunningCenter) -> None:
    """Fault 48: nothing is served beside the table but the agents' WebSocket and the portal, whose
    pages call the API as their user."""
    app: Any = center.local.center.app
    routes = app._app._app._app.routes  # guard, prefix, direct
    assert [type(route).__module__ for route in routes if not hasattr(route, "path")] == [
        "skep.portal.routes"
    ]
    served = {route.path for route in routes if hasattr(route, "path")}
    assert served == {row.path for row in TABLE} | {"/node/commands"}


@pytest.mark.parametrize("role", [*PEOPLE, None], ids=str)
async def test_the_commands_of_agents_are_for_agents(
    center: RunningCenter, callers: dict[Role, Caller], role: Role | None
) -> None:
    """Faults 48, 65: the WebSocket asks for the same token."""
    caller = callers[role] if role else center.anyone
    with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
        async with caller.socket("a1"):
            pass
    assert refused.value.status == 403


async def test_a_socket_for_another_agent_is_refused(center: RunningCenter) -> None:
    """Fault 65: `may_be` holds for commands too."""
    mine = await center.caller(Role.AGENT, "a1")
    async with mine.socket("a1") as socket:
        assert not socket.closed
    with pytest.raises(aiohttp.WSServerHandshakeError):
        async with mine.socket("a2"):
            pass


FOREIGN: dict[str, dict[str, str]] = {
    "rebound name": {"Host": "evil.example"},
    "rebound name with our port": {"Host": "evil.example:{port}"},
    "a name that begins like ours": {"Host": "127.0.0.1.evil.example"},
    "a name behind a bracket": {"Host": "[::1]evil.example"},
    "no name": {"Host": ""},
    "foreign origin": {"Origin": "http://evil.example"},
    "opaque origin": {"Origin": "null"},
    "our host on another port": {"Origin": "http://127.0.0.1:1"},
    "broken origin": {"Origin": "http://["},
}


@pytest.mark.parametrize("what", FOREIGN)
async def test_pages_from_elsewhere_are_kept_out(center: RunningCenter, what: str) -> None:
    """Fault 52: DNS rebinding and foreign origins, with a good token, on HTTP and WebSocket."""
    port = center.url.rpartition(":")[2]
    headers = {name: value.format(port=port) for name, value in FOREIGN[what].items()}
    for caller, path in ((center.admin, "/api/v1/runs"), (center.anyone, "/livez")):
        answer = await caller.send("GET", path, headers=headers)
        assert (answer.status, answer.problem().code) == (403, "forbidden")
    with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
        async with center.agent.socket("a1", headers):
            pass
    assert refused.value.status == 403


async def test_the_same_origin_is_welcome(center: RunningCenter) -> None:
    answer = await center.admin.send("GET", "/api/v1/runs", headers={"Origin": center.url})
    assert answer.status == 200
    async with center.agent.socket("a1", {"Origin": center.url}) as socket:
        assert not socket.closed


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.5", "example.com", ""])
async def test_an_open_center_without_auth_is_refused(host: str) -> None:
    """Fault 48: another bind than loopback needs auth."""
    with pytest.raises(ConfigurationError, match="without auth"):
        check_bind(CenterSettings(host=host, auth=False))
    check_bind(CenterSettings(host=host, auth=True))


@pytest.mark.parametrize("host", ["127.0.0.1", "::1", "localhost", "127.9.9.9"])
async def test_loopback_may_go_without(host: str) -> None:
    check_bind(CenterSettings(host=host, auth=False))


async def test_the_server_itself_checks_its_bind(center: RunningCenter) -> None:
    """Fault 48: before a socket is bound."""
    with pytest.raises(ConfigurationError, match="without auth"):
        CenterServer(center.local.center, CenterSettings(host="0.0.0.0", port=0, auth=False))


async def test_a_port_that_is_taken_is_an_error_at_once(center: RunningCenter) -> None:
    port = int(center.url.rpartition(":")[2])
    with pytest.raises(ConfigurationError, match="--port"):
        CenterServer(center.local.center, CenterSettings(port=port))


async def test_the_page_for_people_is_html_under_its_own_policy(center: RunningCenter) -> None:
    """U1: `/docs` answers without a token, and its policy allows nothing but its style."""
    answer = await center.anyone.send("GET", "/docs")
    assert answer.status == 200
    assert answer.headers["Content-Type"] == "text/html; charset=utf-8"
    assert answer.headers["Content-Security-Policy"] == POLICY
    assert b"submit_requests" in answer.content
