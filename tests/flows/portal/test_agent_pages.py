"""Agents, one agent, and adding an agent: pages of a real center. P4."""

from __future__ import annotations

from collections.abc import AsyncIterator
from hashlib import sha256

import pytest
import pytest_asyncio

from skep.model.fleet.agent import Vitals
from skep.testing.grounds.centers import Caller, HandAgent, RunningCenter, running_center
from skep.testing.grounds.portal_pages import Markup, PortalUser, portal_user
from skep.wire import messages

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def center(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[RunningCenter]:
    async with running_center(tmp_path_factory.mktemp("center")) as running:
        yield running


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def admin(center: RunningCenter) -> PortalUser:
    return await portal_user(center, "fleet-admin")


async def _agent(center: RunningCenter, name: str, vitals: Vitals | None = None) -> HandAgent:
    hand = center.hand_agent(name)
    await hand.register()
    await hand.heartbeat(vitals=vitals or Vitals(cpu=0.25, active=3, rate=12.0))
    return hand


def _acts(page: Markup, agent: str) -> set[str]:
    start = f"/agents/{agent}/"
    actions = {tag.get("action", "") for tag in page.found("form")}
    return {one.removeprefix(start) for one in actions if one.startswith(start)}


async def test_without_agents_the_list_teaches_how_to_add_one(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    async with running_center(tmp_path_factory.mktemp("empty")) as empty:
        admin = await portal_user(empty, "first")
        page = Markup((await admin.open("/agents")).content)
        assert f"skep agent join {empty.url} --token" in page.text
        assert "/add-agent" in [tag.get("href") for tag in page.found("a")]
        viewer = await portal_user(empty, "looks", "viewer")
        page = Markup((await viewer.open("/agents")).content)
        assert "/add-agent" not in [tag.get("href") for tag in page.found("a")]


async def test_the_list_shows_what_the_heartbeat_said(
    center: RunningCenter, admin: PortalUser
) -> None:
    await _agent(center, "listed", Vitals(cpu=0.5, active=7, rate=42.0, outbox=9))
    page = Markup((await admin.open("/agents?filter=id%3Alisted")).content)
    for text in ("listed", "alive", "42/s", "1 found"):
        assert text in page.text
    none = Markup((await admin.open("/agents?filter=state%3Adead")).content)
    assert "listed" not in none.text.replace("id:listed", "")


async def test_bulk_acts_of_the_list_are_for_admins(
    center: RunningCenter, admin: PortalUser
) -> None:
    await _agent(center, "many")
    acts = [
        tag.get("value") for tag in Markup((await admin.open("/agents")).content).found("button")
    ]
    assert {"enable", "disable", "cordon"} <= set(acts)
    viewer = await portal_user(center, "no-bulk", "viewer")
    buttons = Markup((await viewer.open("/agents")).content).found("button")
    assert "disable" not in [tag.get("value") for tag in buttons]


async def test_an_agent_page_shows_figures_commands_and_the_runs_it_works_for(
    center: RunningCenter, admin: PortalUser
) -> None:
    hand = await _agent(center, "seen", Vitals(cpu=0.5, active=2, free_memory=2 * 10**9, dropped=4))
    await center.open_run("chosen", placement={"strategy": "fixed", "n": 1, "group": "default"})
    await center.put("chosen", ["http://held.test/1"])
    await center.dispatched()
    page = Markup((await admin.open("/agents/seen")).content)
    for text in ("seen", "alive", "It is working.", "50", "2 GB", "Dropped results"):
        assert text in page.text, text
    await hand.heartbeat()


async def test_a_drain_is_shown_until_the_agent_acknowledged_it(
    center: RunningCenter, admin: PortalUser
) -> None:
    hand = await _agent(center, "drained")
    assert {"disable", "cordon", "drain", "restart", "exit", "revoke"} == _acts(
        Markup((await admin.open("/agents/drained")).content), "drained"
    )
    answer = await admin.submit("/agents/drained/drain")
    assert (answer.status, answer.headers["Location"]) == (303, "/agents/drained")
    page = Markup((await admin.open("/agents/drained")).content)
    assert "draining" in page.text
    assert "not acknowledged yet" in page.text
    assert "enable" in _acts(page, "drained")
    detail = (await center.admin.get("/api/v1/agents/drained")).json()
    await hand.heartbeat(obeyed=detail["orders"][0]["no"])
    page = Markup((await admin.open("/agents/drained")).content)
    assert "not acknowledged yet" not in page.text
    await admin.submit("/agents/drained/enable")
    assert (await center.admin.get("/api/v1/agents/drained")).json()["agent"]["enabled"] is True


@pytest.mark.parametrize(("verb", "word"), [("disable", "disabled"), ("cordon", "cordoned")])
async def test_setting_an_agent_aside_and_back(
    center: RunningCenter, admin: PortalUser, verb: str, word: str
) -> None:
    name = f"aside-{verb}"
    await _agent(center, name)
    assert (await admin.submit(f"/agents/{name}/{verb}")).status == 303
    page = Markup((await admin.open(f"/agents/{name}")).content)
    assert word in page.text
    await admin.submit(f"/agents/{name}/enable")
    assert "It is working." in Markup((await admin.open(f"/agents/{name}")).content).text


@pytest.mark.parametrize("role", ["viewer", "operator"])
async def test_only_admins_command_agents(center: RunningCenter, role: str) -> None:
    await _agent(center, f"guarded-{role}")
    person = await portal_user(center, f"fleet-{role}", role)
    page = Markup((await person.open(f"/agents/guarded-{role}")).content)
    assert _acts(page, f"guarded-{role}") == set()
    assert (await person.submit(f"/agents/guarded-{role}/disable")).status == 403
    kept = (await center.admin.get(f"/api/v1/agents/guarded-{role}")).json()
    assert kept["agent"]["enabled"] is True
    assert (await person.submit("/add-agent", hours="1")).status == 403
    page = Markup((await person.open("/add-agent")).content)
    assert "Your role does not allow this" in page.text
    assert "/add-agent" not in {tag.get("action") for tag in page.found("form")}


async def test_wrong_commands_and_unknown_agents_change_nothing(
    center: RunningCenter, admin: PortalUser
) -> None:
    await _agent(center, "steady")
    assert (await admin.submit("/agents/steady/explode")).status == 400
    assert (await admin.open("/agents/nobody")).status == 404
    assert (await admin.submit("/agents/nobody/disable")).status == 404


@pytest.mark.parametrize("tab", ["charts", "log", "nonsense"])
async def test_the_other_tabs_of_an_agent(
    center: RunningCenter, admin: PortalUser, tab: str
) -> None:
    await _agent(center, "tabbed")
    answer = await admin.open(f"/agents/tabbed?tab={tab}")
    assert answer.status == 200
    text = Markup(answer.content).text
    assert {"charts": "Processor", "log": "No log lines.", "nonsense": "Holds now"}[tab] in text


async def test_a_join_command_works_once_and_its_checks_appear(
    center: RunningCenter, admin: PortalUser
) -> None:
    """The token is in the answer to the form alone; the row of the new agent appears by reading
    the page again."""
    answer = await admin.submit(
        "/add-agent", agent="newcomer", group="home", labels="site=attic", hours="1"
    )
    assert answer.status == 200
    copies = [tag.get("data-copy", "") for tag in Markup(answer.content).found("button")]
    join = next(one for one in copies if one.startswith(f"skep agent join {center.url} --token "))
    token = join.rpartition(" ")[2]

    async def checks() -> str:
        page = await admin.open("/add-agent")
        assert token.encode() not in page.content
        return Markup(page.content).text

    assert "Waits for a machine" in await checks()
    secret = "skep_agent_" + "s" * 43
    join_call = messages.Join("newcomer", sha256(secret.encode()).digest())
    joined = await _caller(center, token).packed("/node/join", join_call)
    assert joined.status == 200, joined.content
    assert "Start it with" in await checks()
    hand = HandAgent(_caller(center, secret), "newcomer")
    await hand.register()
    assert "No heartbeat yet." in await checks()
    await hand.heartbeat()
    text = await checks()
    assert "Heartbeat 0 s ago." in text
    assert "; the center has " in text, "the hand-made agent says no version"
    assert "home" in Markup((await admin.open("/agents/newcomer")).content).text


def _caller(center: RunningCenter, token: str) -> Caller:
    return Caller(center.anyone._session, center.url, token)


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"labels": "attic"}, "is not a label"),
        ({"hours": "9999"}, "is not one of"),
        ({"agent": "../etc"}, ""),
    ],
)
async def test_a_wrong_value_keeps_what_was_typed(
    center: RunningCenter, admin: PortalUser, fields: dict[str, str], problem: str
) -> None:
    before = len((await center.admin.get("/api/v1/tokens")).json()["items"])
    answer = await admin.submit("/add-agent", group="<b>kept", **fields)
    assert answer.status == 400
    page = Markup(answer.content)
    assert problem in page.text
    assert "<b>kept" in [tag.get("value") for tag in page.found("input")]
    assert b"<b>kept" not in answer.content
    assert len((await center.admin.get("/api/v1/tokens")).json()["items"]) == before
