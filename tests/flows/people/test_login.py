"""Users log in, by password or link, and out again: cookies, sessions, and bad input."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from skep.errors import Forbidden
from skep.testing.grounds.browsers import PASSWORD, Browser, add_user, browser, logged_in
from skep.testing.grounds.centers import RunningCenter, running_center, two_centers
from skep.testing.polling import until
from skep.wire.api.runs import OpenRun
from skep.wire.client.api import CenterApi
from skep.wire.client.in_process import InProcessTransport

pytestmark = pytest.mark.asyncio(loop_scope="module")
ME = "/api/v1/me"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def center(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[RunningCenter]:
    async with running_center(tmp_path_factory.mktemp("center")) as running:
        yield running


async def link_for(center: RunningCenter, user: str) -> str:
    answer = await center.admin.post(f"/api/v1/users/{user}/link")
    found: str = answer.json()["link"]
    return found


async def test_a_user_logs_in_reads_and_logs_out(center: RunningCenter) -> None:
    """P4: the session is in a cookie; its id is in no answer."""
    page = await logged_in(center, "anna", "operator")
    assert (await page.call("GET", ME)).json()["who"] == "anna"
    (secret,) = page.cookies.values()
    sessions = await page.call("GET", "/api/v1/sessions")
    assert len(sessions.json()["items"]) == 1
    assert secret.encode() not in sessions.content
    assert (await page.call("POST", "/api/v1/logout")).status == 200
    assert page.cookies == {}
    page.cookies["skep_session"] = secret
    assert (await page.call("GET", ME)).problem().code == "unauthorized"


async def test_the_cookie_is_kept_from_scripts_and_other_sites(center: RunningCenter) -> None:
    page = await logged_in(center, "cookie")
    flags = {part.strip() for part in page.set_cookie.split(";")[1:]}
    assert {"HttpOnly", "SameSite=Lax", "Path=/"} <= flags
    assert "Secure" not in flags, "the test speaks plain HTTP"


@pytest.mark.parametrize(
    ("public_url", "name", "path"),
    [
        ("https://a.test", "__Host-skep_session", "Path=/"),
        ("https://a.test/skep", "__Secure-skep_session", "Path=/skep"),
        ("http://a.test/skep", "skep_session", "Path=/skep"),
    ],
)
async def test_the_cookie_behind_a_proxy(
    tmp_path: Path, public_url: str, name: str, path: str
) -> None:
    async with running_center(tmp_path, center_public_url=public_url) as center:
        await add_user(center, "anna")
        page = Browser(center.anyone, public_url.removesuffix("/skep"))
        page.headers["Host"] = "a.test"
        assert (await page.log_in("anna")).status == 200
        assert list(page.cookies) == [name]
        flags = [part.strip() for part in page.set_cookie.split(";")]
        assert path in flags
        assert ("Secure" in flags) == public_url.startswith("https")
        assert (await page.call("GET", ME)).json()["who"] == "anna"
        if name != "skep_session":  # a name that plain HTTP could have set is not read
            page.cookies = {"skep_session": page.cookies[name]}
            assert (await page.call("GET", ME)).status == 401


async def test_a_trusted_proxy_says_that_the_browser_uses_tls(tmp_path: Path) -> None:
    async with running_center(tmp_path, center_trusted_proxies=["127.0.0.1"]) as center:
        await add_user(center, "anna")
        page = browser(center)
        page.headers["X-Forwarded-Proto"] = "https"
        await page.log_in("anna")
        assert page.set_cookie.endswith("; Secure")
        assert list(page.cookies) == ["__Host-skep_session"]


async def test_a_planted_session_id_is_worth_nothing(center: RunningCenter) -> None:
    """Fixation: the id is new at every login, and the session of before ends."""
    page = await logged_in(center, "fixed")
    before = dict(page.cookies)
    assert (await page.log_in("fixed")).status == 200
    assert page.cookies != before
    thief = browser(center)
    thief.cookies = before
    assert (await thief.call("GET", ME)).status == 401
    planted = browser(center)
    planted.cookies = {"skep_session": "skep_session_" + "0" * 39}
    await planted.log_in("fixed")
    assert planted.cookies["skep_session"] != "skep_session_" + "0" * 39


@pytest.mark.parametrize(
    "cookie",
    [
        "skep_session=",
        "skep_session=skep_session_" + "0" * 39,
        "skep_session=" + "a" * 9000,
        'skep_session="\xfe\xff"; =; ;;;',
        "skep_session=x; skep_session=y",
        "skep_session=../../etc/passwd",
        "skep_session=skep_admin_0123",
    ],
)
async def test_garbage_in_cookies_is_no_session(center: RunningCenter, cookie: str) -> None:
    answer = await center.anyone.send("GET", ME, None, {"Cookie": cookie})
    assert answer.problem().code == "unauthorized"


async def test_two_cookies_of_one_name_are_no_session(center: RunningCenter) -> None:
    """Another host of the same site may have planted one of them."""
    page = await logged_in(center, "twice")
    (secret,) = page.cookies.values()
    both = {"Cookie": f"skep_session=skep_session_{'0' * 39}; skep_session={secret}"}
    assert (await center.anyone.send("GET", ME, None, both)).status == 401


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "https://evil.test", "Sec-Fetch-Site": "cross-site"},
        {"Origin": "null"},
        {"Origin": "", "Sec-Fetch-Site": "same-site"},
        {"Origin": "", "Sec-Fetch-Site": "cross-site"},
        {"Origin": "", "Sec-Fetch-Site": "none"},
        {},
    ],
)
async def test_a_changing_call_with_a_cookie_must_come_from_here(
    center: RunningCenter, headers: dict[str, str]
) -> None:
    """S8: a foreign page, or one that does not say where it is from, changes nothing."""
    name = f"origin{len(str(headers))}"
    page = await logged_in(center, name, "operator")
    page.headers = {key: value for key, value in headers.items() if value}
    answer = await page.call("PUT", f"/api/v1/runs/{name}", {})
    assert answer.status == 403
    assert (await center.admin.get(f"/api/v1/runs/{name}")).status == 404
    page.headers = {"Origin": center.url}
    assert (await page.call("PUT", f"/api/v1/runs/{name}", {})).status == 200


async def test_a_foreign_page_cannot_log_a_browser_in(center: RunningCenter) -> None:
    await add_user(center, "foreign")
    page = browser(center)
    page.headers = {"Sec-Fetch-Site": "cross-site"}
    assert (await page.log_in("foreign")).status == 403
    assert page.cookies == {}


async def test_wrong_logins_look_alike(center: RunningCenter) -> None:
    """An unknown, a disabled and a known user: the same error."""
    await add_user(center, "known")
    await add_user(center, "gone")
    await center.admin.send(
        "PATCH", "/api/v1/users/gone", b'{"disabled":true}', {"Content-Type": "application/json"}
    )
    answers = set()
    for name in ("known", "ghost", "gone", "Known", "known'--", "../known"):
        answer = await browser(center).log_in(name, "not the password")
        answers.add((answer.status, answer.problem().detail))
    assert len(answers) == 1, answers


async def test_a_password_of_10_mb_is_refused_before_it_is_read(center: RunningCenter) -> None:
    await add_user(center, "large")
    answer = await browser(center).log_in("large", "x" * 10_000_000)
    assert answer.problem().code == "too_large"
    assert (await browser(center).log_in("large", "x" * 1025)).problem().code == "malformed"
    body = {"name": "larger", "password": "x" * 1025}
    assert (await center.admin.post("/api/v1/users", body)).status == 400


async def test_a_thousand_logins_on_one_account_stall_nothing(center: RunningCenter) -> None:
    """Most are refused at once; other calls, and other accounts, go on."""
    await add_user(center, "target")
    await add_user(center, "bystander")
    pages = [browser(center) for _ in range(1000)]
    flood = [asyncio.create_task(page.log_in("target", "wrong password")) for page in pages]
    begun = time.perf_counter()
    assert (await center.admin.get("/api/v1/users")).status == 200
    assert (await browser(center).log_in("bystander")).status == 200
    slowest = time.perf_counter() - begun
    answers = await asyncio.gather(*flood)
    statuses = [answer.status for answer in answers]
    assert set(statuses) == {401, 429}
    assert statuses.count(401) <= 60
    assert slowest < 15, slowest
    refused = next(answer for answer in answers if answer.status == 429)
    assert "login link" in refused.problem().detail
    assert (await browser(center).follow(await link_for(center, "target"))).status == 200


async def test_a_login_link_works_once(center: RunningCenter) -> None:
    await add_user(center, "linked")
    link = await link_for(center, "linked")
    page = browser(center)
    assert (await page.follow(link)).json()["user"] == "linked"
    assert (await page.call("GET", ME)).json()["who"] == "linked"
    assert (await browser(center).follow(link)).status == 401
    for guess in ("", "x", link[:-1], "skep_link_" + "0" * 39):
        assert (await browser(center).follow(guess)).status == 401


async def test_links_cannot_be_guessed_without_end(tmp_path: Path) -> None:
    async with running_center(tmp_path, center_wrong_tokens=5) as center:
        await add_user(center, "anna")
        statuses = [(await browser(center).follow(f"skep_link_{n}")).status for n in range(7)]
        assert statuses == [401] * 5 + [429] * 2


async def test_an_unknown_way_to_log_in_is_named(center: RunningCenter) -> None:
    answer = await browser(center).call("POST", "/api/v1/login", {"kind": "magic"})
    assert "password, link" in answer.problem().detail


async def test_a_role_lowered_under_a_session_counts_at_every_center(
    tmp_path: Path, shared: dict[str, str]
) -> None:
    """P4: within 5 s, at the center that was told and at the other."""
    async with two_centers(tmp_path, shared) as (one, two):
        page = await logged_in(one, "anna", "operator")
        there = browser(two)
        there.cookies = dict(page.cookies)
        there.headers = {"Origin": two.url}
        assert (await there.call("PUT", "/api/v1/runs/a", {})).status == 200
        await one.admin.send(
            "PATCH",
            "/api/v1/users/anna",
            b'{"role":"viewer"}',
            {"Content-Type": "application/json"},
        )
        assert (await page.call("PUT", "/api/v1/runs/b", {})).status == 403
        begun = time.monotonic()

        async def refused() -> bool:
            return (await there.call("PUT", "/api/v1/runs/b", {})).status == 403

        await until(refused, seconds=5.0)
        await one.admin.send("DELETE", "/api/v1/users/anna/sessions")
        assert (await page.call("GET", ME)).status == 401

        async def ended() -> bool:
            return (await there.call("GET", ME)).status == 401

        await until(ended, seconds=5.0)
        assert time.monotonic() - begun < 10


async def test_a_role_lowered_under_a_call_that_waits(tmp_path: Path) -> None:
    """The call is not answered with what it waited for."""
    async with running_center(tmp_path) as center:
        page = await logged_in(center, "anna", "operator")
        driven = await page.call("POST", "/requestqueue/slow/driver", {"job": "slow"})
        assert driven.status == 200
        await center.put("slow", ["http://a.test/"])
        body = {"limit": 1, "wait": 6.0}
        waiting = asyncio.create_task(page.call("POST", "/requestqueue/slow/read", body))
        await asyncio.sleep(0)
        await center.admin.send(
            "PATCH",
            "/api/v1/users/anna",
            b'{"role":"viewer"}',
            {"Content-Type": "application/json"},
        )
        assert (await waiting).problem().code == "forbidden"


async def test_a_page_in_the_same_process_calls_as_its_user(center: RunningCenter) -> None:
    """The portal's way: the cookie of the browser, without the network."""
    page = await logged_in(center, "inside", "operator")
    ((name, value),) = page.cookies.items()
    way = InProcessTransport(center.local.center.app, "", cookie=f"{name}={value}; other=1")
    api = CenterApi(way)
    assert (await api.login.me()).who == "inside"
    assert (await api.runs.open("inside", OpenRun())).run.id == "inside"
    with pytest.raises(Forbidden):
        await api.users.list()


async def test_a_session_and_a_link_survive_a_restart(tmp_path: Path) -> None:
    async with running_center(tmp_path) as center:
        page = await logged_in(center, "anna")
        link = await link_for(center, "anna")
    async with running_center(tmp_path) as center:
        again = browser(center)
        again.cookies = page.cookies
        assert (await again.call("GET", ME)).json()["who"] == "anna"
        assert (await browser(center).follow(link)).status == 200


async def test_the_own_password_needs_the_present_one(center: RunningCenter) -> None:
    page = await logged_in(center, "changer")
    other = browser(center)
    await other.log_in("changer")
    body = {"old": "wrong", "new": "another password"}
    assert (await page.call("PUT", "/api/v1/me/password", body)).status == 403
    short = {"old": PASSWORD, "new": "short"}
    assert (await page.call("PUT", "/api/v1/me/password", short)).status == 400
    good = {"old": PASSWORD, "new": "another password"}
    assert (await page.call("PUT", "/api/v1/me/password", good)).json() == {"sessions": 1}
    assert (await page.call("GET", ME)).status == 200
    assert (await other.call("GET", ME)).status == 401
    assert (await browser(center).log_in("changer")).status == 401
    assert (await browser(center).log_in("changer", "another password")).status == 200
    token = await center.admin.put("/api/v1/me/password", good)
    assert token.problem().code == "conflict"


async def test_users_end_their_own_sessions_and_admins_all(center: RunningCenter) -> None:
    anna, bob = await logged_in(center, "own1"), await logged_in(center, "own2")
    (mine,) = (await anna.call("GET", "/api/v1/sessions")).json()["items"]
    (theirs,) = (await bob.call("GET", "/api/v1/sessions?user=own1")).json()["items"]
    assert theirs["user"] == "own2", "a user sees own sessions only"
    path = f"/api/v1/sessions/{mine['id']}"
    assert (await bob.call("DELETE", path)).status == 404
    assert (await center.admin.send("DELETE", path)).json()["user"] == "own1"
    assert (await anna.call("GET", ME)).status == 401
    assert (await bob.call("DELETE", f"/api/v1/sessions/{theirs['id']}")).status == 200
    assert (await bob.call("GET", ME)).status == 401
