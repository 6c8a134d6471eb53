"""`skep agent join`: the looks at a center before a one-time token is used, and its use.

Nothing is changed before every look that matters went well, so a wrong address, a wrong
clock or a proxy in the way do not cost a token.
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
from skep.wire.client import CenterClient
from skep.wire.messages import OLDEST_PROTOCOL, PROTOCOL, Join, Joined

PENDING = "agent.joining"
TOKEN = "agent.token"  # noqa: S105 - a file's name
#: Public addresses that stand for "the internet"; no packet is sent to them.
PUBLIC = ((socket.AF_INET, "192.0.2.1"), (socket.AF_INET6, "2001:db8::1"))

#: Words in an error, what they mean, and what to do.
MEANINGS: tuple[tuple[tuple[str, ...], str, str], ...] = (
    (
        ("CERTIFICATE_VERIFY_FAILED", "certificate verify failed"),
        "its certificate is not trusted here, is out of date, or is for another name",
        "use the name in the certificate; for a CA of your own set SSL_CERT_FILE to its file",
    ),
    (
        ("WRONG_VERSION_NUMBER", "wrong version number", "record layer failure"),
        "what listens there does not speak TLS",
        "write http:// for a center without TLS, or the address of the proxy that has it",
    ),
    (
        ("Name or service not known", "name resolution", "No address associated", "getaddrinfo"),
        "its name cannot be resolved on this machine",
        "check the name and the DNS settings here",
    ),
    (
        ("Connection refused", "Connect call failed", "ECONNREFUSED"),
        "nothing listens at that address and port",
        "start the center, bind it beyond loopback with --host, and check the port",
    ),
    (
        ("took too long", "timed out", "timeout", "unreachable", "No route"),
        "nothing answers: a firewall or a wrong address",
        "allow outbound connections from here to the center",
    ),
    (
        ("Server disconnected", "reset by peer", "Bad status line", "Expected HTTP"),
        "it hangs up on plain HTTP",
        "write https:// when the center is behind TLS",
    ),
    (
        ("like a Skep center", "not part of the API", "Not Found"),
        "something answers that is no center",
        "check the address, and the path when the center is behind a proxy",
    ),
)


class About(msgspec.Struct):
    """What a center says about itself; whoever says less is none."""

    version: str
    protocol: int
    oldest_protocol: int
    now: float = 0.0


class JoinCheck(msgspec.Struct):
    """A finding, and whether joining makes no sense when it is wrong."""

    finding: Finding
    needed: bool = True


def explain(url: str, words: str) -> Finding:
    """A failed call in words that say what to do."""
    for signs, meaning, fix in MEANINGS:
        if any(sign.lower() in words.lower() for sign in signs):
            return Finding("reach", False, f"{url}: {meaning} ({words[-160:]})", fix)
    return Finding("reach", False, f"{url}: {words[-300:]}", "check the address and the network")


async def look_at(url: str) -> list[JoinCheck]:
    """Everything about one address of the center."""
    if urlsplit(url).scheme not in {"http", "https"}:
        detail = f"{url}: an address begins with http:// or https://"
        return [JoinCheck(Finding("reach", False, detail, "write it like that"))]
    clock = SystemClock()
    async with CenterClient([url], "", clock, Random()) as client:  # noqa: S311 - jitter
        asked = clock.now()
        try:
            about = await client.call("GET", "/version", None, About)
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
    """Every address. Of several centers some may be down just now: one that is well will do."""
    found = [await look_at(url) for url in urls]
    if any(all(look.finding.ok for look in looks if look.needed) for looks in found):
        for look in (one for looks in found for one in looks):
            look.needed = look.needed and look.finding.ok
    return [look for looks in found for look in looks]


def in_the_clear(url: str) -> Finding:
    """Over plain HTTP everybody on the way can read the agent's credential."""
    parts = urlsplit(url)
    safe = parts.scheme == "https" or is_loopback(parts.hostname or "")
    detail = "TLS" if parts.scheme == "https" else "plain HTTP"
    return Finding("tls", safe, detail, "put a reverse proxy with TLS before the center")


def protocol(about: About) -> Finding:
    """A center speaks its own protocol and the one before; so do agents."""
    newest, oldest = about.protocol, about.oldest_protocol
    good = newest >= OLDEST_PROTOCOL and oldest <= PROTOCOL <= newest
    side = "the center first, then this agent" if newest < PROTOCOL else "this agent"
    detail = f"center {about.version} (protocol {oldest} to {newest}), agent {__version__}"
    return Finding("version", good, f"{detail} (protocol {PROTOCOL})", f"upgrade {side}")


def clocks(skew: float) -> Finding:
    """Skep believes no agent's clock; certificates and the reading of logs depend on it."""
    detail = f"{abs(skew):.1f} s {'behind' if skew > 0 else 'ahead of'} the center"
    return Finding("clock", abs(skew) < SKEW_LIMIT, detail, "set the clock, for example by NTP")


def egress(settings: Settings) -> Iterator[JoinCheck]:
    """Where downloads may go from here, and whether there is a way at all."""
    rules = settings.egress
    said = "public addresses" + "".join(f", {network}" for network in rules.allow)
    said += "".join(f", never {network}" for network in rules.deny)
    found = has_route()
    fix = "downloads need a route to where the pages are, or a proxy in the run"
    detail = f"downloads may go to {said}; " + (
        f"a route exists for {' and '.join(found)}"
        if found
        else "there is no route to the internet"
    )
    yield JoinCheck(Finding("egress", bool(found), detail, fix), needed=False)


def has_route() -> list[str]:
    """Address families with a way out, as the kernel sees it."""
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
    """One page, downloaded as the agent would."""
    from skep.cli.commands.crawl.page_fetcher import Fetcher
    from skep.model.run import RunSettings
    from skep.spiders.authoring.request import Request

    async with Fetcher(settings, RunSettings()) as fetcher:
        page = await fetcher.fetch(Request(url))
    detail = f"{url}: {page.status or ''} {page.failure or 'downloaded'}".replace(":  ", ": ")
    fix = "look at egress.allow, at the DNS and at the firewall of this machine"
    return JoinCheck(Finding("download", not page.failure, detail, fix), needed=False)


class Folder:
    """The data folder of a machine that joins."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def check(self, *, again: bool) -> None:
        """Raises ConfigurationError when it is not ours to write to."""
        if (self.folder / "center.name").exists():
            raise ConfigurationError(
                f"{self.folder} belongs to a center, whose agents need not join; choose another"
                " folder with --data"
            )
        if (self.folder / TOKEN).exists() and not again:
            raise ConfigurationError(
                f"{self.folder} has a credential already; start it with `skep agent`, or join"
                " --again with a new token"
            )

    def propose(self, wanted: str) -> tuple[str, str]:
        """(agent's id, a secret): those of a join that was cut off, else new ones. Nothing is
        written: the folder of an agent that works must not change by a look."""
        kept = self.folder / "agent" / "agent-id"
        known = read_agent_id(kept) if kept.exists() and kept.stat().st_size else ""
        fresh = new_id("agent", SystemClock().now(), Random())  # noqa: S311 - a name, no secret
        pending = self.folder / PENDING
        secret = read_token(pending) if pending.exists() else new_secret(f"skep_{Role.AGENT}")
        return wanted or known or fresh, secret

    def prepare(self, agent: str) -> str:
        """Keep the agent's id; its secret, the same when it is asked for again."""
        place = self.folder / "agent"
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        place.mkdir(exist_ok=True)
        write_durably(place / "agent-id", f"{agent}\n".encode())
        return ensure_token(self.folder / PENDING, Role.AGENT)

    def keep(self, urls: Sequence[str]) -> None:
        """From now on `skep agent` finds everything here."""
        write_durably(self.folder / "center.url", f"{','.join(urls)}\n".encode())
        os.replace(self.folder / PENDING, self.folder / TOKEN)  # noqa: PTH105 - as in files.py
        sync_folder(self.folder)


async def use_token(
    urls: Sequence[str], token: str, agent: str, secret: str, *, dry: bool
) -> Joined:
    """Raises what the center says."""
    message = Join(agent, digest_of(secret), dry=dry)
    async with CenterClient(urls, token, SystemClock(), Random()) as client:  # noqa: S311 - jitter
        return await client.join(message)
