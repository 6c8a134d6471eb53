"""Behind nginx, as deploy/nginx.conf has it: TLS by a private CA, below /skep/."""

from __future__ import annotations

import asyncio
import json
import os
import re
import ssl
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from skep.testing.fleet import tell
from skep.testing.needs import needs
from skep.testing.private import free_port
from skep.testing.processes import CenterProcess, JoinedAgent
from skep.testing.servers import Nginx
from skep.testing.site import DemoSite

pytestmark = pytest.mark.xdist_group("cli")
EXAMPLE = Path(__file__).parents[3] / "deploy" / "nginx.conf"
PAGES = 30
#: Beats are so rare that whatever an agent hears at once came by WebSocket or a long poll.
RARE_BEATS = {"SKEP_CENTER_HEARTBEAT_EVERY": "60", "SKEP_CENTER_ALIVE_AFTER": "200"}


def make_certificates(folder: Path) -> None:
    """A CA, and a certificate of it for 127.0.0.1."""
    needs("openssl")
    openssl = "openssl"
    key = ["-newkey", "rsa:2048", "-nodes", "-days", "2"]
    ca = ["-keyout", "ca.key", "-out", "ca.pem", "-subj", "/CN=a CA of our own"]
    ask = ["-keyout", "key.pem", "-out", "ask.pem", "-subj", "/CN=127.0.0.1"]
    (folder / "names").write_text("subjectAltName=IP:127.0.0.1\n")
    signed = ["-in", "ask.pem", "-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial"]
    for words in (
        ["req", "-x509", *key, *ca],
        ["req", *key, *ask],
        ["x509", "-req", *signed, "-days", "2", "-extfile", "names", "-out", "cert.pem"],
    ):
        subprocess.run([openssl, *words], cwd=folder, check=True, capture_output=True)


class ExampleNginx(Nginx):
    """nginx with the example of deploy/, but for addresses and places of files."""

    center: CenterProcess
    #: A second one, for which the example has a line in a comment.
    other: CenterProcess | None = None

    def _configuration(self, port: int) -> str:
        mine = EXAMPLE.read_text()
        mine = mine.replace("127.0.0.1:8420", f"127.0.0.1:{self.center.port}")
        if self.other is not None:
            mine = mine.replace("# server 10.0.0.2:8420", f"server 127.0.0.1:{self.other.port}")
        mine = mine.replace("listen 443", f"listen 127.0.0.1:{port}")
        mine = re.sub(r"listen \[::\].*", "", mine)
        mine = mine.replace("/etc/skep/tls", str(self.folder))
        plain = super()._configuration(port)
        return re.sub(r"  server {.*}\n}\n$", lambda _: f"{mine}\n}}\n", plain)


class World:
    """A center on loopback behind the proxy; no test here calls it directly."""

    def __init__(self, folder: Path, center: CenterProcess, proxy: ExampleNginx) -> None:
        self.folder = folder
        self.center = center
        self.ca = proxy.folder / "ca.pem"
        self.url = f"https://127.0.0.1:{proxy.port}/skep"

    @property
    def trust(self) -> dict[str, str]:
        return {"SSL_CERT_FILE": str(self.ca)}

    def skep(self, *arguments: str, given: str = "", data: str = "elsewhere") -> str:
        kept = {k: v for k, v in os.environ.items() if not k.startswith("SKEP_")}
        own = {"SKEP_DATA": str(self.folder / data), "NO_COLOR": "1", **self.trust}
        done = subprocess.run(
            [sys.executable, "-m", "skep", *arguments],
            env={**kept, **own},
            input=given,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def through(self, *arguments: str, given: str = "") -> str:
        """A command of an admin elsewhere, with the proxy's address."""
        token = str(self.center.folder / "admin.token")
        return self.skep(*arguments, "--center", self.url, "--token-file", token, given=given)

    def get(self, path: str, **headers: str) -> tuple[int, str, Any]:
        """One call without following anything: status, Location, JSON."""

        class Stay(urllib.request.HTTPRedirectHandler):
            def redirect_request(self, *_: Any) -> None:
                return None

        trusting = urllib.request.HTTPSHandler(
            context=ssl.create_default_context(cafile=str(self.ca))
        )
        call = urllib.request.Request(f"{self.url}{path}", headers=headers)
        try:
            with urllib.request.build_opener(trusting, Stay()).open(call, timeout=20) as answer:
                return answer.status, "", json.loads(answer.read())
        except urllib.error.HTTPError as error:
            with error:
                body = error.read()
                return error.code, error.headers.get("Location", ""), json.loads(body or "null")


@pytest.fixture(scope="module")
def world(nginx_server: Nginx, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """`nginx_server` skips, or fails, where nginx is not installed."""
    folder = tmp_path_factory.mktemp("proxied")
    proxy = ExampleNginx()
    make_certificates(proxy.folder)
    proxy.port = free_port()
    public = {
        "SKEP_CENTER_PUBLIC_URL": f"https://127.0.0.1:{proxy.port}/skep",
        "SKEP_CENTER_TRUSTED_PROXIES": "127.0.0.1",
    }
    with CenterProcess(folder / "center", {**RARE_BEATS, **public}) as center:
        proxy.center = center
        with proxy:
            yield World(folder, center, proxy)


async def test_an_agent_joins_and_works_through_the_proxy(world: World) -> None:
    """A1: join, long polls, reports, and orders by WebSocket, all through TLS and a sub-path."""
    home = world.folder / "attic"
    token = (await asyncio.to_thread(world.through, "agent", "token")).strip()
    joining = ("agent", "join", world.url, "--token", token)
    joined = await asyncio.to_thread(lambda: world.skep(*joining, data="attic"))
    assert "joined  as" in joined
    agent = JoinedAgent(home, [world.url], home / "agent.token", world.trust)
    async with DemoSite(pages=PAGES) as site:
        with agent:
            pages = "\n".join(f"{site.url}/page/{number}" for number in range(PAGES))
            submit = ("submit", "web", "--new", "--wait", "--json", "-")
            await asyncio.to_thread(lambda: world.through(*submit, given=pages))
            assert sum(site.hits.values()) == PAGES
            await asyncio.to_thread(world.through, "agents", "exit", agent.id)
            assert await asyncio.to_thread(agent.wait, 20) == 0


def test_what_leads_back_leads_through_the_proxy(world: World) -> None:
    """Links and the API's description name the public address, and nothing leads elsewhere."""
    assert world.get("/readyz")[0] == 200
    assert world.get("/openapi.json")[2]["servers"] == [{"url": world.url}]
    status, location, _ = world.get("/livez/")
    assert (status, location) == (404, "")
    status, _, problem = world.get("/nothing")
    assert (status, "see /skep/openapi.json" in problem["detail"]) == (404, True)


def test_names_of_others_are_refused_behind_the_proxy_too(world: World) -> None:
    """Fault 52: a page under a name of its own cannot talk to a center on loopback."""
    assert world.get("/livez", Host="evil.example")[0] == 403
    assert world.get("/livez", Origin="https://evil.example")[0] == 403
    assert world.get("/livez", Origin=world.url.removesuffix("/skep"))[0] == 200


@pytest.mark.slow
async def test_one_address_and_two_centers_behind_it(
    nginx_server: Nginx, tmp_path: Path, shared: dict[str, str]
) -> None:
    """Fault 15: who knows only the proxy does not notice kill -9 of the centers in turn."""
    proxy = ExampleNginx()
    make_certificates(proxy.folder)
    proxy.port = free_port()
    env = shared | {"SKEP_CENTER_PUBLIC_URL": f"https://127.0.0.1:{proxy.port}/skep"}
    calls = 0
    with (
        CenterProcess(tmp_path / "one", env) as proxy.center,
        CenterProcess(tmp_path / "two", env) as other,
    ):
        proxy.other = other
        with proxy:
            world = World(tmp_path, proxy.center, proxy)
            token = {"Authorization": f"Bearer {proxy.center.admin_token}"}
            for victim in (proxy.center, other) * 3:
                await asyncio.to_thread(victim.kill)
                back = asyncio.create_task(asyncio.to_thread(victim.start))
                while not back.done():
                    status, _, ledger = await asyncio.to_thread(
                        lambda: world.get("/api/v1/ledger", **token)
                    )
                    assert (status, ledger["unaccounted"]) == (200, 0)
                    calls += 1
                await back
    tell("15", kills=6, calls_through_a_proxy=calls, failed_calls=0)
    assert calls > 6
