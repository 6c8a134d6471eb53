"""Every change is a row of the audit log; refused calls are rows or sums; secrets are masked."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from skep.access.audit import KINDS, AuditTrail
from skep.center.app import api_table
from skep.center.http.authentication import Role
from skep.errors import StoreDown
from skep.model.people.audit import AuditOutcome, AuditRow
from skep.settings import AccessSettings
from skep.store.sql.store import SqlStore
from skep.testing.clock import ManualClock
from skep.testing.grounds.browsers import PASSWORD, add_user, browser, logged_in
from skep.testing.grounds.centers import RunningCenter, running_center
from skep.testing.polling import until
from skep.wire.filter.check import read_filter
from skep.wire.filter.tables import AUDIT

pytestmark = pytest.mark.asyncio(loop_scope="module")

#: Messages of the work itself: the ledger and the dispatch log account for them.
WORK = {
    *("send_heartbeat", "lease_blocks", "report_blocks", "return_blocks", "report_instances"),
    *("send_instance_log", "read_ended_requests", "save_checkpoint", "mark_blocks_collected"),
    "send_log_lines",
}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def center(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[RunningCenter]:
    async with running_center(tmp_path_factory.mktemp("center")) as running:
        yield running


async def rows(center: RunningCenter, text: str) -> list[dict[str, Any]]:
    answer = await center.admin.send("GET", f"/api/v1/audit?limit=1000&filter={text}")
    found: list[dict[str, Any]] = answer.json()["items"]
    return found


async def row(center: RunningCenter, text: str) -> dict[str, Any]:
    """The newest row, as soon as there is one: refusals are written in the background."""
    found: list[dict[str, Any]] = await until(lambda: rows(center, text), seconds=10)
    return found[0]


async def test_every_route_that_changes_something_is_audited() -> None:
    """P4: a route that is not, is listed here."""
    table = api_table()
    assert {one.route.id for one in table if one.method != "GET" and not one.is_audited} == WORK
    # An export leaves the center with everything that its filter matched.
    audited = [one.route.id for one in table if one.method == "GET" and one.is_audited]
    assert audited == ["get_operation_file"]


async def test_a_change_has_who_where_what_before_and_after(center: RunningCenter) -> None:
    page = await logged_in(center, "anna", "operator")
    await page.call("PUT", "/api/v1/jobs/quotes", {"requests": ["http://a.test/"]})
    changed = {"requests": ["http://u:geheim@a.test/"], "note": "new"}
    assert (await page.call("PUT", "/api/v1/jobs/quotes", changed)).status == 200
    newest, first = await rows(center, "object:job:quotes")
    assert (newest["who"], newest["action"], newest["outcome"]) == ("anna", "set_job", "done")
    assert (newest["client"], newest["address"]) == ("browser", "127.0.0.1")
    (session,) = (await page.call("GET", "/api/v1/sessions")).json()["items"]
    assert newest["credential"] == session["id"]
    assert '"revision":1' in newest["before"]
    assert '"revision":2' in newest["after"]
    assert '"note":"new"' in newest["after"]
    assert "geheim" not in newest["after"]
    assert (first["before"], first["center"]) == ("", center.services.name)


async def test_commands_of_the_cli_and_verbs_are_named(center: RunningCenter) -> None:
    await center.open_run("paused")
    sent = {"User-Agent": "skep/1.0"}
    assert (await center.admin.send("POST", "/api/v1/runs/paused/pause", None, sent)).status == 200
    found = await row(center, "object:run:paused%20action:change_run")
    assert (found["client"], found["detail"]) == ("cli", "pause")
    assert '"running"' in found["before"]
    assert '"paused"' in found["after"]
    assert found["who"].startswith("token:admin.token of")


async def test_submitted_requests_are_one_row_without_a_body(center: RunningCenter) -> None:
    await center.open_run("queue")
    await center.put("queue", [{"uri": f"http://a.test/{n}"} for n in range(50)])
    (found,) = await rows(center, "object:run:queue%20action:submit_requests")
    assert (found["before"], found["after"]) == ("", "")
    refused = await center.admin.post("/requestqueue/queue", ["not a url"])
    assert refused.status == 400
    failed = await row(center, "object:run:queue%20outcome:failed")
    assert failed["detail"].startswith("not_a_url")
    assert len(await rows(center, "object:run:queue%20action:submit_requests")) == 2


async def test_agents_that_join_register_and_are_revoked(center: RunningCenter) -> None:
    await center.hand_agent("attic").register()
    assert (await row(center, "object:agent:attic"))["action"] == "register_agent"
    token = (await center.admin.post("/api/v1/join-tokens", {"agent": "cellar"})).json()["token"]
    body = {"agent": "cellar", "digest": "n4bQgYhMfWWaL+qgxVrQFaO/TxsrC4Is0V1sFbDwCgg="}
    headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
    import msgspec

    joined = await center.anyone.send("POST", "/node/join", msgspec.json.encode(body), headers)
    assert joined.status == 200
    found = await row(center, "object:agent:cellar")
    assert (found["action"], found["client"]) == ("join_agent", "agent")
    assert token not in str(await rows(center, ""))


async def test_logins_are_rows_and_hold_no_password(center: RunningCenter) -> None:
    page = await logged_in(center, "logger")
    await browser(center).log_in("logger", "secret-wrong-password")
    await page.call("PUT", "/api/v1/me/password", {"old": PASSWORD, "new": "secret-new-password"})
    done = await row(center, "action:log_in%20user:logger")
    assert (done["object"], done["outcome"]) == ("user:logger", "done")
    assert (await row(center, "action:set_own_password"))["who"] == "logger"
    await row(center, "action:log_in%20outcome:refused")
    everything = str(await rows(center, ""))
    for secret in (PASSWORD, "secret-wrong-password", "secret-new-password", "scrypt"):
        assert secret not in everything


async def test_a_failed_login_names_the_account_but_no_other_text(center: RunningCenter) -> None:
    """P4: whose account is attacked; a password in the field of the name is not written."""
    for name in ("dora", "erik"):
        await add_user(center, name)
    page = browser(center)
    for user in ("dora", "erik", "my-secret-password"):
        form = {"user": user, "password": "wrong"}
        assert (await page.call("POST", "/api/v1/login", form)).problem().status == 401
    for name in ("dora", "erik"):
        found = await row(center, f"object:user:{name}%20action:log_in%20outcome:refused")
        assert (found["who"], found["address"]) == ("", "127.0.0.1")
    await center.services.people.audit.flush(over=True)
    assert "my-secret-password" not in str(await rows(center, "action:log_in"))


async def test_a_refused_call_is_a_row_and_a_flood_is_a_sum(tmp_path: Path) -> None:
    async with running_center(tmp_path) as center:
        viewer = await center.caller(Role.VIEWER)
        assert (await viewer.put("/api/v1/runs/nope", {})).status == 403
        found = await row(center, "object:run:nope")
        assert (found["outcome"], found["who"][:6]) == ("refused", "token:")
        for n in range(200):
            assert (await center.anyone.put(f"/api/v1/runs/x{n}", {})).status == 401
        first = await row(center, "outcome:refused%20-user:*")
        assert (first["times"], first["address"]) == (1, "127.0.0.1")
        await center.services.people.audit.flush(over=True)
        sums = await rows(center, "outcome:refused%20-user:*")
        assert [one["times"] for one in sums] == [199, 1]


async def test_sums_are_bounded_and_each_minute_has_its_own(tmp_path: Path) -> None:
    store, clock = SqlStore(f"sqlite:///{tmp_path / 'skep.db'}"), ManualClock()
    await store.open()
    trail = AuditTrail(store, clock, "c1", AccessSettings())
    for n in range(3 * KINDS):
        address = f"10.{n // 65536}.{n // 256 % 256}.{n % 256}"
        trail.record_soon(
            AuditRow(clock.now(), "", "log_in", "", AuditOutcome.REFUSED, address=address)
        )
    await trail.flush()
    clock.advance(60)
    await trail.close()
    everything = read_filter("", AUDIT, clock.now())
    page = await store.audit.page(everything, 5000)
    assert len(page.items) == KINDS + 1
    assert sum(one.times for one in page.items) == 3 * KINDS
    await store.close()


async def test_a_change_whose_row_cannot_be_written_is_not_answered_with_success(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The change is made, the row is not: the caller is told to repeat the call."""
    async with running_center(tmp_path) as center:
        original = center.services.store.audit.add

        async def down(_rows: Any) -> None:
            raise StoreDown("the store does not answer")

        monkeypatch.setattr(center.services.store.audit, "add", down)
        answer = await center.admin.put("/api/v1/runs/half", {})
        assert answer.problem().code == "store_down"
        monkeypatch.setattr(center.services.store.audit, "add", original)
        assert (await center.admin.put("/api/v1/runs/half", {})).status == 200
        assert len(await rows(center, "object:run:half")) == 1


async def test_a_call_that_fails_in_the_middle_is_a_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running_center(tmp_path) as center:
        await center.open_run("middle")

        async def broken(*_: Any, **__: Any) -> None:
            raise ValueError("a bug with password=geheim")

        monkeypatch.setattr(center.services.store.requests, "cancel", broken)
        assert (await center.admin.post("/api/v1/runs/middle/cancel")).status == 500
        found = await row(center, "object:run:middle%20outcome:failed")
        assert found["action"] == "change_run"
        assert "geheim" not in found["detail"]


async def test_only_admins_read_the_log_and_bad_filters_are_explained(
    center: RunningCenter,
) -> None:
    operator = await center.caller(Role.OPERATOR)
    assert (await operator.get("/api/v1/audit")).status == 403
    answer = await center.admin.get("/api/v1/audit?filter=colour:red")
    assert "user" in answer.problem().detail
    assert (await center.admin.get("/api/v1/audit?limit=0")).status == 400
    assert (await center.admin.get(f"/api/v1/audit?filter={'x' * 10_001}")).status == 400


async def test_pages_of_the_log_cover_every_row_once(center: RunningCenter) -> None:
    await asyncio.gather(*(center.open_run(f"page-{n}") for n in range(25)))
    seen: list[int] = []
    after = 0
    while True:
        path = f"/api/v1/audit?limit=7&after={after}&filter=object:run:page-*"
        page = (await center.admin.get(path)).json()
        seen += [one["id"] for one in page["items"]]
        if page["next"] is None:
            break
        after = page["next"]
    assert len(seen) == len(set(seen)) == 25
    assert seen == sorted(seen, reverse=True)


async def test_dry_runs_and_reads_are_no_rows(center: RunningCenter) -> None:
    await add_user(center, "reader", "admin")
    page = browser(center)
    await page.log_in("reader")
    await page.call("GET", "/api/v1/runs")
    body = {"filter": {"run": "queue"}, "dry_run": True}
    assert (await page.call("POST", "/api/v1/requests/cancel", body)).status == 200
    found = await rows(center, "user:reader")
    assert [one["action"] for one in found] == ["log_in"]


@pytest.mark.parametrize(
    "name", ["a\x00b", "\u202egnp", "x" * 500, "<script>", "'; DROP TABLE audit;--"]
)
async def test_hostile_names_of_objects_are_written_as_text(
    center: RunningCenter, name: str
) -> None:
    from urllib.parse import quote

    answer = await center.admin.put(f"/api/v1/runs/{quote(name, safe='')}", {})
    assert answer.status == 400
    newest = await row(center, "outcome:failed%20action:open_run")
    assert newest["object"].isprintable()
    assert len(newest["object"]) <= 200
