"""The bundled demo site: a small, fast web site for downloads, on 127.0.0.1 only.

It runs inside a test, inside `skep demo`, or alone: `python -m skep.testing.site`. Pages are made
from a seed, so the same number always gives the same page. It supports as much HTTP as a crawler
needs. Never expose it to a network.

    /               links to the first pages          /robots.txt, /sitemap.xml
    /page/N         about 10 KB: title, text, links   /slow?seconds=S
    /status/CODE    an empty page with that status    /redirect/N   N redirects, then /page/0
    /hits           requests per path, as JSON
"""

from __future__ import annotations

import argparse
import asyncio
import json
import signal
import sys
from collections import Counter
from dataclasses import dataclass
from typing import cast
from urllib.parse import parse_qs

import uvloop

from skep.testing.listening_server import ListeningServer
from skep.testing.site_pages import Pages

HEAD_LIMIT = 65536
LONGEST_WAIT = 3600.0
REASONS = {200: "OK", 302: "Found", 400: "Bad Request", 404: "Not Found", 405: "Method Not Allowed"}
#: A status that must not come with a body.
BODILESS = frozenset({204, 304})


@dataclass(frozen=True, slots=True)
class Answer:
    """A complete response; `wait` is its delay in seconds."""

    head: bytes
    body: bytes = b""
    wait: float = 0.0


def answer(
    body: str | bytes,
    status: int = 200,
    kind: str = "text/html; charset=utf-8",
    location: str = "",
    wait: float = 0.0,
) -> Answer:
    """Write the head for a body."""
    content = body.encode() if isinstance(body, str) else body
    lines = [f"HTTP/1.1 {status} {REASONS.get(status, 'Status')}"]
    if status in BODILESS:
        content = b""
    else:
        lines += [f"Content-Type: {kind}", f"Content-Length: {len(content)}"]
    if location:
        lines.append(f"Location: {location}")
    return Answer("\r\n".join([*lines, "", ""]).encode(), content, wait)


class DemoSite(ListeningServer):
    """A site of `pages` pages; each response is delayed by `latency` seconds."""

    #: Cached responses; other pages are made again at each request.
    KEPT = 5000

    def __init__(
        self, pages: int = 1000, latency: float = 0.0, port: int = 0, seed: int = 1
    ) -> None:
        self.pages = pages
        self.latency = latency
        #: Requests per path, without the query.
        self.hits: Counter[str] = Counter()
        self._port = port
        self._content = Pages(pages, seed)
        self._kept: dict[str, Answer] = {}
        self._server: asyncio.Server | None = None
        self._open: set[asyncio.Transport] = set()
        self._fixed = {
            "/": self._front,
            "/robots.txt": self._robots,
            "/sitemap.xml": self._sitemap,
        }
        self._families = {
            "page": self._page,
            "status": self._status,
            "redirect": self._redirect,
        }

    async def start(self) -> None:
        """Listen; `url` is known afterwards."""
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(
            lambda: _Connection(self, self._open), "127.0.0.1", self._port, backlog=1024
        )
        self._port = int(self._server.sockets[0].getsockname()[1])

    async def stop(self) -> None:
        """Close the port and every connection."""
        if self._server is None:
            return
        self._server.close()
        for transport in tuple(self._open):
            transport.abort()
        await self._server.wait_closed()
        self._server = None

    @property
    def url(self) -> str:
        """The URL of the site, without a slash at the end."""
        return f"http://127.0.0.1:{self._port}"

    def page_urls(self) -> list[str]:
        """The URL of every page."""
        return [f"{self.url}/page/{number}" for number in range(self.pages)]

    def respond(self, target: str) -> Answer:
        """Count a hit and return its response; called once for each request."""
        path, _, query = target.partition("?")
        self.hits[path] += 1
        ready = self._kept.get(path)
        return ready or self._make(path, query)

    def _make(self, path: str, query: str) -> Answer:
        if path == "/slow":
            return self._slow(query)
        if path == "/hits":
            return answer(json.dumps(self.hits), kind="application/json")
        if fixed := self._fixed.get(path):
            return self._keep(path, fixed())
        family, _, number = path[1:].partition("/")
        make = self._families.get(family)
        if make is None or not (number.isascii() and number.isdigit()) or len(number) > 9:
            return _not_found()
        return make(int(number))

    def _keep(self, path: str, made: Answer) -> Answer:
        if len(self._kept) < self.KEPT:
            self._kept[path] = made
        return made

    def _front(self) -> Answer:
        return answer(self._content.front())

    def _page(self, number: int) -> Answer:
        if number >= self.pages:
            return _not_found()
        return self._keep(f"/page/{number}", answer(self._content.page(number)))

    def _robots(self) -> Answer:
        text = f"User-agent: *\nAllow: /\nSitemap: {self.url}/sitemap.xml\n"
        return answer(text, kind="text/plain; charset=utf-8")

    def _sitemap(self) -> Answer:
        return answer(self._content.sitemap(self.url), kind="application/xml")

    def _status(self, code: int) -> Answer:
        return answer(f"<title>{code}</title>\n", code) if 200 <= code <= 599 else _not_found()

    def _redirect(self, left: int) -> Answer:
        location = f"/redirect/{left - 1}" if left > 1 else "/page/0"
        return answer("", 302, location=location)

    def _slow(self, query: str) -> Answer:
        text = parse_qs(query).get("seconds", ["1"])[0]
        try:
            seconds = min(max(float(text), 0.0), LONGEST_WAIT)
        except ValueError:
            return answer("<title>seconds must be a number</title>\n", 400)
        return answer(f"<title>after {seconds} s</title>\n", wait=seconds)


def _not_found() -> Answer:
    return answer("<title>Not found</title>\n", 404)


class _Connection(asyncio.Protocol):
    """One keep-alive connection; requests are answered one after the other."""

    def __init__(self, site: DemoSite, open_connections: set[asyncio.Transport]) -> None:
        self._site = site
        self._open = open_connections
        self._buffer = b""
        self._body_left = 0
        self._timer: asyncio.TimerHandle | None = None
        self._transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # A cast, because uvloop's transports do not inherit from asyncio's.
        self._transport = cast("asyncio.Transport", transport)
        self._open.add(self._transport)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - asyncio's name
        self._open.discard(self._transport)
        if self._timer is not None:
            self._timer.cancel()

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        self._serve()

    def _serve(self) -> None:
        """Answer complete requests, until a response is delayed or none is left."""
        while self._timer is None and not self._transport.is_closing():
            self._skip_body()
            end = self._buffer.find(b"\r\n\r\n")
            if end < 0:
                if len(self._buffer) > HEAD_LIMIT:
                    self._refuse()
                return
            head, self._buffer = self._buffer[:end], self._buffer[end + 4 :]
            self._handle(head)

    def _skip_body(self) -> None:
        skipped = min(self._body_left, len(self._buffer))
        self._buffer = self._buffer[skipped:]
        self._body_left -= skipped

    def _handle(self, head: bytes) -> None:
        line, _, headers = head.partition(b"\r\n")
        parts = line.split(b" ")
        if len(parts) != 3 or not parts[1].startswith(b"/"):
            self._refuse()
            return
        method, target, version = parts
        fields = _fields(headers)
        length = fields.get(b"content-length", b"0")
        self._body_left = int(length) if length.isdigit() else 0
        found = self._site.respond(target.decode("latin-1"))
        closing = version == b"HTTP/1.0" or fields.get(b"connection", b"").lower() == b"close"
        self._answer(found if method in {b"GET", b"HEAD"} else _not_allowed(), method, closing)

    def _answer(self, found: Answer, method: bytes, closing: bool) -> None:
        content = found.head if method == b"HEAD" else found.head + found.body
        wait = found.wait or self._site.latency
        if not wait:
            self._send(content, closing)
            return
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(wait, self._send_late, content, closing)

    def _send_late(self, content: bytes, closing: bool) -> None:
        self._timer = None
        self._send(content, closing)
        self._serve()

    def _send(self, content: bytes, closing: bool) -> None:
        self._transport.write(content)
        if closing:
            self._transport.close()

    def _refuse(self) -> None:
        refusal = answer("<title>Bad request</title>\n", 400)
        self._send(refusal.head + refusal.body, closing=True)


def _not_allowed() -> Answer:
    return answer("<title>GET and HEAD only</title>\n", 405)


def _fields(headers: bytes) -> dict[bytes, bytes]:
    pairs = (line.partition(b":") for line in headers.split(b"\r\n"))
    return {name.strip().lower(): value.strip() for name, _, value in pairs}


async def serve(port: int, pages: int, latency: float) -> None:
    """Run a site until SIGINT or SIGTERM; the first line of output is its address."""
    ended = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, ended.set)
    async with DemoSite(pages, latency, port) as site:
        sys.stdout.write(f"{site.url}\n")
        sys.stdout.flush()
        await ended.wait()


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m skep.testing.site", description=DemoSite.__doc__
    )
    parser.add_argument("--port", type=int, default=0, help="port to listen on; 0 takes a free one")
    parser.add_argument("--pages", type=int, default=1000, help="number of pages")
    parser.add_argument("--latency", type=float, default=0.0, help="seconds before each response")
    chosen = parser.parse_args()
    uvloop.run(serve(chosen.port, chosen.pages, chosen.latency))


if __name__ == "__main__":
    main()
