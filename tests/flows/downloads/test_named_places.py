"""Loopback and private addresses are reached only where a person named the host and the port.

Each test runs in a network namespace with a public address on its `lo`: a public site there
links and redirects to a server on loopback that no person named.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from skep.testing.namespaces import Namespace
from skep.testing.needs import unless_absent

PUBLIC = "93.184.216.34"
SITE, SECRET, CENTER = 8001, 8002, 8003

SERVERS = """
import sys, threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

class Site(BaseHTTPRequestHandler):
    def do_GET(self):
        parts = urlsplit(self.path)
        to = parse_qs(parts.query).get("to", [""])[0]
        links = {"/r": 302, "/robots.txt": 404}
        self.send_response(links.get(parts.path, 200))
        body = f"<title>{parts.path}</title>" + (f'<a href="{to}">x</a>' if to else "")
        if parts.path == "/r":
            self.send_header("Location", to)
        self.send_header("Content-Type", "text/html")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body.encode())

class Secret(Site):
    def do_GET(self):
        with open(sys.argv[1], "a") as log:
            log.write(self.path + chr(10))
        super().do_GET()

for address, port, kind in (("0.0.0.0", 8001, Site), ("127.0.0.1", 8002, Secret)):
    server = ThreadingHTTPServer((address, port), kind)
    threading.Thread(target=server.serve_forever).start()
print("ready", flush=True)
"""

SPIDER = """
import skep

class Follow(skep.Spider):
    name = "follow"
    start_urls = ["{start}"]
    settings = {{"block_size": 10}}

    def parse(self, response):
        yield {{"title": response.css("title::text").get()}}
        for link in response.css("a::attr(href)").getall():
            yield response.follow(link)
"""


class Machine:
    """A machine of its own with a public site and a server on loopback."""

    def __init__(self, home: Namespace, folder: Path) -> None:
        self._prefix = home.prefix
        self.folder = folder
        self.log = folder / "secret.log"
        self.log.touch()

    def popen(self, *words: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [*self._prefix, sys.executable, *words],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            cwd=self.folder,
        )

    def skep(self, *words: str) -> tuple[int, str]:
        done = self.popen("-m", "skep", *words)
        said, _ = done.communicate(timeout=60)
        return done.returncode, said

    def run(self, start: str, *options: str) -> tuple[list[str], str]:
        """Titles of the pages that a spider saw, and what the command said."""
        (self.folder / "follow.py").write_text(SPIDER.format(start=start))
        items = self.folder / "items.jsonl"
        items.unlink(missing_ok=True)
        data = self.folder / f"data{time.monotonic_ns()}"
        _, said = self.skep("run", "follow.py", "--data", str(data), "-o", str(items), *options)
        lines = items.read_text().splitlines() if items.exists() else []
        return [json.loads(line)["title"] for line in lines], said

    @property
    def asked(self) -> list[str]:
        """Paths that reached the server on loopback."""
        return self.log.read_text().split()


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    with unless_absent(), Namespace() as home:
        add = [home.prefix[0], "-n", home.name, "address", "add", f"{PUBLIC}/32", "dev", "lo"]
        subprocess.run(add, check=True)
        machine = Machine(home, tmp_path)
        servers = machine.popen("-c", SERVERS, str(machine.log))
        assert servers.stdout is not None
        assert servers.stdout.readline() == "ready\n"
        try:
            yield machine
        finally:
            servers.kill()
            servers.communicate()


def test_fetch_follows_no_redirect_to_loopback_without_a_name(machine: Machine) -> None:
    """H1: `skep fetch` of a public page that redirects to loopback fails as blocked; the same
    address on the command line is fetched."""
    secret = f"http://127.0.0.1:{SECRET}/secret"
    for to in (secret, f"http://localhost:{SECRET}/secret", f"http://[::ffff:7f00:1]:{SECRET}/"):
        code, said = machine.skep("fetch", f"http://{PUBLIC}:{SITE}/r?to={to}")
        assert (code, "blocked" in said) == (1, True), said
    assert machine.asked == []
    code, said = machine.skep("fetch", secret)
    assert (code, machine.asked) == (0, ["/secret"]), said
    # A redirect to another port of the same host is not what was named.
    code, said = machine.skep("fetch", f"http://127.0.0.1:{SITE}/r?to={secret}")
    assert (code, machine.asked) == (1, ["/secret"]), said


def test_shell_and_parse_follow_no_redirect_to_loopback(machine: Machine) -> None:
    """H1: as `skep fetch`; nor does a page that the code of a shell names by a redirect."""
    secret = f"http://127.0.0.1:{SECRET}/secret"
    (machine.folder / "follow.py").write_text(SPIDER.format(start="http://a.example/"))
    public = f"http://{PUBLIC}:{SITE}/r?to={secret}"
    code, said = machine.skep("parse", public, "--spider", "follow.py")
    assert (code, "blocked" in said) == (1, True), said
    _, said = machine.skep("shell", public, "-c", "print(response.status)")
    assert "blocked" in said, said
    _, said = machine.skep("shell", "-c", f"print(fetch({public!r}))")
    assert "blocked" in said, said
    assert machine.asked == []
    code, said = machine.skep("parse", secret, "--spider", "follow.py")
    assert (code, machine.asked) == (0, ["/secret"]), said


def test_a_spider_on_a_public_page_does_not_reach_loopback(machine: Machine) -> None:
    """H1: a link and a redirect on a public page lead `skep run` nowhere near loopback; a
    start URL on loopback works, its links on the same host and port too."""
    secret = f"http://127.0.0.1:{SECRET}/secret"
    titles, said = machine.run(f"http://{PUBLIC}:{SITE}/start?to={secret}")
    assert (titles, machine.asked) == (["/start"], []), said
    titles, said = machine.run(
        f"http://{PUBLIC}:{SITE}/start?to=http://{PUBLIC}:{SITE}/r?to={secret}"
    )
    assert (titles, machine.asked) == (["/start"], []), said
    titles, said = machine.run(f"http://127.0.0.1:{SECRET}/first?to=/second")
    assert (titles, machine.asked) == (["/first", "/second"], ["/first?to=/second", "/second"]), (
        said
    )


def test_the_port_of_the_center_is_never_downloaded(machine: Machine) -> None:
    """H1: `skep up` returns neither its own /metrics nor what a public page redirects to, also
    when a person submits the address; a submitted page of another port is done."""
    data = str(machine.folder / "data")
    center = machine.popen("-m", "skep", "up", "--data", data, "--port", str(CENTER))
    try:
        assert center.stdout is not None
        next(line for line in center.stdout if line.startswith("agent "))
        urls = [
            f"http://127.0.0.1:{CENTER}/metrics",
            f"http://localhost:{CENTER}/metrics",
            f"http://127.0.0.9:{CENTER}/metrics",
            f"http://{PUBLIC}:{SITE}/r?to=http://127.0.0.1:{SECRET}/hidden",
            f"http://127.0.0.1:{SITE}/fine",
        ]
        (machine.folder / "urls").write_text("\n".join(urls))
        where = ("--data", data, "--new", "--wait", "--timeout", "40")
        _, said = machine.skep("submit", "mine", *where, "urls")
        _, said = machine.skep("failures", "ls", "--json", "--data", data)
        groups = json.loads(said)["items"]
        assert sum(group["requests"] for group in groups) == 4, said
        assert {group["failure"] for group in groups} == {"blocked"}, said
        assert machine.asked == []
    finally:
        center.terminate()
        center.communicate(timeout=30)
