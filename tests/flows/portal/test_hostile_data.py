"""Hostile texts that were collected: URI, title, header, item, body, detail, note. P4."""

from __future__ import annotations

from collections.abc import AsyncIterator
from urllib.parse import quote

import pytest
import pytest_asyncio

from skep.portal.show.bodies import without_loads
from skep.testing.grounds.centers import RunningCenter, running_center
from skep.testing.grounds.collected_data import answered, collected, failed, group_of
from skep.testing.grounds.hostile_texts import HOSTILE_TEXTS, MARK
from skep.testing.grounds.portal_pages import Markup, PortalUser, portal_user

pytestmark = pytest.mark.asyncio(loop_scope="module")

_NEVER = {"srcdoc", "style", "http-equiv", "poster"}
_LINKS = ("href", "src", "action", "formaction", "data")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def center(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[RunningCenter]:
    async with running_center(tmp_path_factory.mktemp("center")) as running:
        yield running


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def admin(center: RunningCenter) -> PortalUser:
    return await portal_user(center, "careful")


def check(content: bytes, *, shows: bool = True) -> None:
    """The texts are there, and none became a tag, an attribute, a link or a script."""
    markup = Markup(content)
    assert not shows or MARK in markup.text or "evil.test" in markup.text
    for tag, attributes in markup.tags:
        assert tag not in {"base", "object", "embed", "math", "template"}
        assert not {name for name in attributes if name.startswith("on") or name in _NEVER}, tag
        links = [attributes[name].strip().lower() for name in _LINKS if name in attributes]
        # Only paths of this center: no scheme, no other host.
        assert all(one[:1] in {"/", "#"} and one[:2] != "//" for one in links), (tag, links)
    scripts = markup.found("script")
    assert all("src" in one or one.get("type") == "application/json" for one in scripts), scripts


async def test_there_are_enough_hostile_texts() -> None:
    assert len(set(HOSTILE_TEXTS)) >= 60


async def test_uris_are_text(center: RunningCenter, admin: PortalUser) -> None:
    await center.open_run("uris")
    await center.admin.post("/api/v1/runs/uris/pause")
    uris = [f"http://a.test/?q={''.join(text.split())}" for text in HOSTILE_TEXTS]
    await center.put("uris", uris)
    found = (await center.admin.get("/api/v1/requests?filter=run:uris&limit=200")).json()["items"]
    assert len(found) >= 60
    check((await admin.open("/requests?filter=run%3Auris")).content, shows=False)
    for line in found:
        check((await admin.open(f"/requests/{line['id']}")).content)


async def test_headers_titles_and_bodies_are_text(center: RunningCenter, admin: PortalUser) -> None:
    title = "".join(f"<title>{text}</title>" for text in HOSTILE_TEXTS)
    body = (title + "\n".join(HOSTILE_TEXTS)).encode()
    texts = [text.encode("ascii", "replace").decode() for text in HOSTILE_TEXTS]
    headers = [(f"X-Test-{at}", text.replace("\t", " ")) for at, text in enumerate(texts)]
    headers.append(("Content-Type", "text/html"))
    one = await answered(center, "bodies", body, headers, "http://a.test/hostile")
    answer = await admin.open(f"/requests/{one}?tab=answer")
    check(answer.content)
    assert Markup(answer.content).text.count("X-Test-") == len(texts)
    check((await admin.open(f"/requests/{one}?tab=page")).content, shows=False)
    framed = await admin.open(f"/requests/{one}/page")
    assert framed.headers["Content-Security-Policy"].startswith("sandbox; default-src 'none'")
    check(framed.content, shows=False)
    assert Markup(framed.content).found("script") == []


@pytest.mark.parametrize("text", HOSTILE_TEXTS)
async def test_a_page_in_the_frame_keeps_nothing_that_runs(text: str) -> None:
    """The policy forbids it in any case; the page does not even ask."""
    content = without_loads(f"<title>{text}</title><p>{text}</p><b>{text}").encode()
    check(content, shows=False)
    assert not {"script", "img", "svg", "iframe", "link", "meta"} & {
        tag for tag, _ in Markup(content).tags
    }


async def test_items_are_text(center: RunningCenter, admin: PortalUser) -> None:
    items: list[dict[str, object]] = [{"title": text, text[:60]: [text]} for text in HOSTILE_TEXTS]
    await collected(center, "items", items)
    path = "/data/items"
    for _ in range(len(items) // 50 + 1):
        page = await admin.open(path)
        check(page.content)
        path = next(
            (tag["href"] for tag in Markup(page.content).found("a") if tag.get("rel") == "next"),
            path,
        )
    for text in HOSTILE_TEXTS:
        sent = quote(text, safe="")
        answer = await admin.open(f"/data/items?search={sent}&column={sent}&after={sent}")
        assert answer.status == 200
        check(answer.content)


async def test_failures_are_text(center: RunningCenter, admin: PortalUser) -> None:
    details = {f"http://h{at}.test/": text for at, text in enumerate(HOSTILE_TEXTS)}
    await failed(center, "details", list(details), details)
    last = await group_of(center, f"h{len(details) - 1}.test")
    check((await admin.open("/failures")).content)
    path = f"/failures/{quote(last, safe='')}"
    for text in HOSTILE_TEXTS:
        await admin.submit(path, verb="ignore", note=text)
        check((await admin.open(path)).content)


async def test_hostile_addresses_are_text(admin: PortalUser) -> None:
    for text in HOSTILE_TEXTS:
        sent = quote(text, safe="")
        for path in (
            f"/requests?filter={sent}&page={sent}",
            f"/requests/{sent}",
            f"/failures?state={sent}&host={sent}&after={sent}",
            f"/failures/{sent}",
            f"/data?filter={sent}",
            f"/data/{sent}",
        ):
            answer = await admin.open(path)
            assert answer.status in {200, 400, 404}, (path, answer.status)
            check(answer.content, shows=False)
