"""The demo site: what crawler tests and `skep demo` rely on."""

from __future__ import annotations

import asyncio
import contextlib
import re
import signal
import sys
from collections.abc import AsyncIterator

import aiohttp
import pytest

from skep.testing.site import DemoSite
from skep.testing.site_pages import Pages


@pytest.fixture
async def site() -> AsyncIterator[DemoSite]:
    async with DemoSite(pages=100) as site:
        yield site


@pytest.fixture
async def client(site: DemoSite) -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession(site.url) as session:
        yield session


async def test_a_page_has_a_title_links_and_about_ten_kilobytes(
    client: aiohttp.ClientSession,
) -> None:
    async with client.get("/page/7") as response:
        body = await response.read()
    assert response.status == 200
    assert int(response.headers["Content-Length"]) == len(body)
    assert 9_900 < len(body) < 10_200
    assert b"<title>Page 7</title>" in body
    assert len(re.findall(rb'<a href="/page/\d+">', body)) == 21
    assert "ETag" not in response.headers


def test_the_same_number_is_always_the_same_page_and_others_differ() -> None:
    one, two = Pages(50), Pages(50)
    assert [one.page(n) for n in range(50)] == [two.page(n) for n in range(50)]
    assert len({one.page(n) for n in range(50)}) == 50


@pytest.mark.parametrize("count", [1, 2, 20, 21, 22, 1000])
def test_every_page_can_be_reached_from_the_front(count: int) -> None:
    pages = Pages(count)
    seen = {int(n) for n in re.findall(r"/page/(\d+)", pages.front())}
    open_ = list(seen)
    while open_:
        fresh = set(pages.links(open_.pop())) - seen
        seen |= fresh
        open_ += fresh
    assert seen == set(range(count))


async def test_hits_are_counted_by_path(client: aiohttp.ClientSession, site: DemoSite) -> None:
    for path in ("/page/1", "/page/1?a=b", "/nowhere"):
        async with client.get(path) as response:
            await response.read()
    assert site.hits == {"/page/1": 2, "/nowhere": 1}


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/", 200),
        ("/robots.txt", 200),
        ("/sitemap.xml", 200),
        ("/page/99", 200),
        ("/page/100", 404),
        ("/page/x", 404),
        ("/page/-1", 404),
        ("/page/99999999999999999999", 404),
        ("/status/503", 503),
        ("/status/204", 204),
        ("/status/999", 404),
        ("/redirect/3", 200),
        ("/slow?seconds=0.01", 200),
        ("/slow?seconds=soon", 400),
        ("/nothing/here", 404),
    ],
)
async def test_each_path_answers(client: aiohttp.ClientSession, path: str, status: int) -> None:
    async with client.get(path) as response:
        assert response.status == status


async def test_redirects_are_as_many_as_were_asked_for(client: aiohttp.ClientSession) -> None:
    async with client.get("/redirect/3") as response:
        assert len(response.history) == 3
        assert response.url.path == "/page/0"


async def test_the_sitemap_names_every_page(client: aiohttp.ClientSession, site: DemoSite) -> None:
    async with client.get("/sitemap.xml") as response:
        found = re.findall(r"<loc>([^<]+)</loc>", await response.text())
    assert found == site.page_urls()


async def test_only_reading_is_allowed(client: aiohttp.ClientSession) -> None:
    async with client.post("/page/1", data=b"x" * 100_000) as response:
        assert response.status == 405
    async with client.head("/page/1") as response:
        assert (response.status, response.content_length) == (200, len(Pages(100).page(1)))


async def exchange(site: DemoSite, *pieces: bytes) -> bytes:
    """Send pieces one by one over a bare connection, and read until it is closed."""
    reader, writer = await asyncio.open_connection("127.0.0.1", int(site.url.rpartition(":")[2]))
    for piece in pieces:
        writer.write(piece)
        await writer.drain()
        await asyncio.sleep(0)
    answer = await reader.read()
    writer.close()
    await writer.wait_closed()
    return answer


async def test_requests_sent_together_are_answered_in_order(site: DemoSite) -> None:
    slow = b"GET /slow?seconds=0.05 HTTP/1.1\r\n\r\n"
    quick = b"GET /status/404 HTTP/1.1\r\nConnection: close\r\n\r\n"
    statuses = re.findall(rb"HTTP/1.1 (\d+)", await exchange(site, slow + quick))
    assert statuses == [b"200", b"404"]


async def test_a_request_may_arrive_in_pieces(site: DemoSite) -> None:
    pieces = (b"GET /sta", b"tus/418 HTTP/1.1\r\nConnection: cl", b"ose\r\n\r", b"\n")
    assert (await exchange(site, *pieces)).startswith(b"HTTP/1.1 418 ")


@pytest.mark.parametrize("nonsense", [b"hello\r\n\r\n", b"GET  /\r\n\r\n", b"x" * 70_000])
async def test_nonsense_is_refused_and_the_connection_closed(
    site: DemoSite, nonsense: bytes
) -> None:
    assert (await exchange(site, nonsense)).startswith(b"HTTP/1.1 400 ")


async def test_latency_holds_every_answer_back() -> None:
    loop = asyncio.get_running_loop()
    async with DemoSite(pages=1, latency=0.05) as site, aiohttp.ClientSession() as client:
        started = loop.time()
        async with client.get(site.url) as response:
            assert response.status == 200
        assert loop.time() - started >= 0.049


async def test_stop_closes_connections_that_wait(site: DemoSite) -> None:
    """A caller that waits for an answer sees the end of the connection at once."""
    together = b"GET /status/404 HTTP/1.1\r\n\r\nGET /slow?seconds=60 HTTP/1.1\r\n\r\n"
    port = int(site.url.rpartition(":")[2])
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(together)
    assert await reader.readuntil(b"</title>\n")
    await site.stop()
    with contextlib.suppress(ConnectionError):
        assert await reader.read() == b""
    writer.close()
    with contextlib.suppress(ConnectionError):
        await writer.wait_closed()
    assert site.hits["/slow"] == 1


async def test_it_runs_alone_and_prints_its_address_first() -> None:
    command = ("-m", "skep.testing.site", "--pages", "3")
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(sys.executable, *command, stdout=pipe)
    assert process.stdout is not None
    url = (await process.stdout.readline()).decode().strip()
    async with aiohttp.ClientSession() as client, client.get(f"{url}/page/2") as response:
        assert response.status == 200
    process.send_signal(signal.SIGTERM)
    assert await process.wait() == 0
