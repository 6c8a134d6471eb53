"""`skep agent join`: checks a center, then uses a one-time token.

Nothing is changed before all required checks pass, so that a wrong address, a wrong clock or a
proxy does not use up a token.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator, Sequence
from pathlib import Path
from random import Random
from urllib.parse import urlsplit

import msgspec

from skep import __version__
from skep.agent.agent_folder import read_agent_id
from skep.center.http.authentication import Role, digest_of, ensure_token, read_token
from skep.center.http.origin_check import is_loopback
from skep.embed.checks.examination import SKEW_LIMIT
from skep.embed.checks.finding import Finding
from skep.errors import ConfigurationError, SkepError
from skep.runtime.clock import SystemClock
from skep.runtime.files import sync_folder, write_durably
from skep.runtime.ids import new_id, new_secret
from skep.settings import Settings
from skep.wire.api.health import Version
from skep.wire.client import CenterClient
from skep.wire.messages import OLDEST_PROTOCOL, PROTOCOL, Join, Joined

PENDING = "agent.joining"
TOKEN = "agent.token"  # noqa: S105 - a file's name
#: Public addresses that represent the internet; no packet is sent to them.
PUBLIC = ((socket.AF_INET, "192.0.2.1"), (socket.AF_INET6, "2001:db8::1"))

#: Parts of error texts, what they mean, and what to do.
MEANINGS: tuple[tuple[tuple[str, ...], str, str], ...] = (
    (
        ("CERTIFICATE_VERIFY_FAILED", "certificate verify failed"),
        "its certificate is not trusted here, has expired, or is for another name",
        "use the name in the certificate; for your own CA, set SSL_CERT_FILE to its file",
    ),
    (
        ("WRONG_VERSION_NUMBER", "wrong version number", "record layer failure"),
        "the server at this address does not use TLS",
        "write http:// for a center without TLS, or use the address of its TLS proxy",
    ),
    (
        ("Name or service not known", "name resolution", "No address associated", "getaddrinfo"),
        "its name cannot be resolved on this machine",
        "check the name and the DNS settings of this machine",
    ),
    (
        ("Connection refused", "Connect call failed", "ECONNREFUSED"),
        "nothing listens at this address and port",
        "start the center, bind it to a reachable address with --host, and check the port",
    ),
    (
        ("took too long", "timed out", "timeout", "unreachable", "No route"),
        "no answer; a firewall blocks the connection, or the address is wrong",
        "allow outbound connections from this machine to the center",
    ),
    (
        ("Server disconnected", "reset by peer", "Bad status line", "Expected HTTP"),
        "the server closes plain HTTP connections",
        "write https:// if the center is behind TLS",
    ),
    (
        ("did not answer like a Skep center", "not part of the API", "Not Found"),
        "the server at this address is not a Skep center",
        "check the address, and the path if the center is behind a proxy",
    ),
)


class JoinCheck(msgspec.Struct):
    """A finding, and whether it must be ok to join."""

    finding: Finding
    needed: bool = True


def explain(url: str, words: str) -> Finding:
    """Describe a failed call, with what to do."""
    for signs, meaning, fix in MEANINGS:
        if any(sign.lower() in words.lower() for sign in signs):
            return Finding("reach", False, f"{url}: {meaning} ({words[-160:]})", fix)
    return Finding("reach", False, f"{url}: {words[-300:]}", "check the address and the network")


async def look_at(url: str) -> list[JoinCheck]:
    """Run all checks for one address of the center."""
    if urlsplit(url).scheme not in {"http", "https"}:
        detail = f"{url}: the address does not begin with http:// or https://"
        return [JoinCheck(Finding("reach", False, detail, "write http://HOST or https://HOST"))]
    clock = SystemClock()
    async with CenterClient([url], "", clock, Random()) as client:  # noqa: S311 - jitter
        asked = clock.now()
        try:
            about = await client.api.health.version()
        except SkepError as error:
            return [JoinCheck(explain(url, error.detail))]
        heard = clock.now()
    detail = f"{url} answers in {1000 * (heard - asked):.0f} ms"
    looks = [JoinCheck(Finding("reach", True, detail)), JoinCheck(in_the_clear(url), needed=False)]
    looks.append(JoinCheck(protocol(about)))
    if about.now:
        looks.append(JoinCheck(clocks(about.now - (asked + heard) / 2), needed=False))
    return looks


async def look_at_all(urls: Sequence[str]) -> list[JoinCheck]:
    """Check all addresses. Some of several centers may be down; one healthy center is enough."""
    found = [await look_at(url) for url in urls]
    if any(all(look.finding.ok for look in looks if look.needed) for looks in found):
        for look in (one for looks in found for one in looks):
            look.needed = look.needed and look.finding.ok
    return [look for looks in found for look in looks]


def in_the_clear(url: str) -> Finding:
    """Over plain HTTP, others on the network path can read the credential of the agent."""
    parts = urlsplit(url)
    safe = parts.scheme == "https" or is_loopback(parts.hostname or "")
    detail = "TLS" if parts.scheme == "https" else "plain HTTP"
    return Finding("tls", safe, detail, "put a reverse proxy with TLS in front of the center")


def protocol(about: Version) -> Finding:
    """Centers and agents support their own protocol version and the one before."""
    newest, oldest = about.protocol, about.oldest_protocol
    good = newest >= OLDEST_PROTOCOL and oldest <= PROTOCOL <= newest
    side = "the center first, then this agent" if newest < PROTOCOL else "this agent"
    detail = f"center {about.version} (protocol {oldest} to {newest}), agent {__version__}"
    return Finding("version", good, f"{detail} (protocol {PROTOCOL})", f"upgrade {side}")


def clocks(skew: float) -> Finding:
    """Skep does not depend on the clocks of agents, but certificates and logs do."""
    detail = f"{abs(skew):.1f} s {'behind' if skew > 0 else 'ahead of'} the center"
    return Finding("clock", abs(skew) < SKEW_LIMIT, detail, "set the clock, for example with NTP")


def egress(settings: Settings) -> Iterator[JoinCheck]:
    """The addresses that downloads may connect to, and whether there is a route to them."""
    rules = settings.egress
    allowed = "public addresses" + "".join(f", {network}" for network in rules.allow)
    allowed += "".join(f", never {network}" for network in rules.deny)
    found = has_route()
    fix = "add a route to the hosts of the pages, or a proxy to the run"
    detail = f"downloads may go to {allowed}; " + (
        f"a route exists for {' and '.join(found)}"
        if found
        else "there is no route to the internet"
    )
    yield JoinCheck(Finding("egress", bool(found), detail, fix), needed=False)


def has_route() -> list[str]:
    """Address families with a route to the internet, according to the kernel."""
    found = []
    for family, address in PUBLIC:
        try:
            with socket.socket(family, socket.SOCK_DGRAM) as probe:
                probe.connect((address, 9))
                found.append("IPv4" if family == socket.AF_INET else "IPv6")
        except OSError:
            continue
    return found


async def fetched(settings: Settings, url: str) -> JoinCheck:
    """Download one page as the agent would."""
    from skep.cli.commands.crawl.page_fetcher import Fetcher
    from skep.model.run import RunSettings
    from skep.spiders.authoring.request import Request

    async with Fetcher(settings, RunSettings()) as fetcher:
        page = await fetcher.fetch(Request(url))
    detail = f"{url}: {page.status or ''} {page.failure or 'downloaded'}".replace(":  ", ": ")
    fix = "check egress.allow, DNS and the firewall of this machine"
    return JoinCheck(Finding("download", not page.failure, detail, fix), needed=False)


class Folder:
    """The data folder of a machine that joins."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def check(self, *, again: bool) -> None:
        """Raises ConfigurationError if the folder cannot be used to join."""
        if (self.folder / "center.name").exists():
            raise ConfigurationError(
                f"{self.folder} belongs to a center, whose own agent does not need to join; choose"
                " another folder with --data"
            )
        if (self.folder / TOKEN).exists() and not again:
            raise ConfigurationError(
                f"{self.folder} already has a credential; start the agent with `skep agent`, or"
                " replace the credential with --again and a new token"
            )

    def propose(self, wanted: str) -> tuple[str, str]:
        """(id of the agent, a secret): those of an interrupted join, or new ones. Nothing is
        written: a check must not change the folder of an active agent."""
        kept = self.folder / "agent" / "agent-id"
        known = read_agent_id(kept) if kept.exists() and kept.stat().st_size else ""
        fresh = new_id("agent", SystemClock().now(), Random())  # noqa: S311 - a name, no secret
        pending = self.folder / PENDING
        secret = read_token(pending) if pending.exists() else new_secret(f"skep_{Role.AGENT}")
        return wanted or known or fresh, secret

    def prepare(self, agent: str) -> str:
        """Store the id of the agent; return its secret, the same on every call."""
        place = self.folder / "agent"
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        place.mkdir(exist_ok=True)
        write_durably(place / "agent-id", f"{agent}\n".encode())
        return ensure_token(self.folder / PENDING, Role.AGENT)

    def keep(self, urls: Sequence[str]) -> None:
        """Store what `skep agent` needs to start from this folder."""
        write_durably(self.folder / "center.url", f"{','.join(urls)}\n".encode())
        os.replace(self.folder / PENDING, self.folder / TOKEN)  # noqa: PTH105 - as in files.py
        sync_folder(self.folder)


async def use_token(
    urls: Sequence[str], token: str, agent: str, secret: str, *, dry: bool
) -> Joined:
    """Raises the error of the center."""
    message = Join(agent, digest_of(secret), dry=dry)
    async with CenterClient(urls, token, SystemClock(), Random()) as client:  # noqa: S311 - jitter
        return await client.join(message)
