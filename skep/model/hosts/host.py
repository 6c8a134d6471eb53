"""A host as all agents together treat it.

The center keeps a row per host and packs at most one open block with the host's requests (its
*hold*), so that one agent at a time contacts it, and rate and concurrency hold over all agents
and runs. The rules travel to the agent as a `Pace`; the agent's observations come back as a
`SiteNote`. Pure; used by centers and agents.
"""

from __future__ import annotations

from ipaddress import ip_address
from typing import Annotated

import msgspec
from msgspec import Meta

from skep.model.message_bounds import Name, Number, Numbers, Real, Text

#: Why a host is paused whose robots.txt could not be fetched; a cause can follow a colon.
ROBOTS = "robots"
#: First words of the message about a robots.txt that could not be fetched.
NO_ROBOTS = "robots.txt could not be fetched"
#: The problem of a host that did not answer several times in a row.
FAILING = "failing"
#: Starts are spaced slightly wider than the rate, so that no second exceeds it.
MARGIN = 1.05


class SiteRule(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An operator's rule for a host; None = the default."""

    #: Requests per second over all agents; 0 = no limit.
    rate: Annotated[float, Meta(ge=0, le=10_000)] | None = None
    #: Parallel downloads over all agents.
    concurrency: Annotated[int, Meta(ge=1, le=1000)] | None = None
    #: Whether robots.txt is obeyed.
    robots: bool | None = None


class Pace(msgspec.Struct, frozen=True, array_like=True):
    """How an agent treats a host while it holds a block with the host's requests."""

    host: Name
    #: Seconds between two starts.
    spacing: Real
    #: Maximum parallel downloads.
    concurrency: Number
    #: Seconds before the first start.
    wait: Real = 0.0
    #: Check robots.txt first.
    robots: bool = False
    #: Seconds between two starts, learnt from the host's answers, over all agents.
    delay: Real = 0.0
    #: Consecutive pauses: this is a probe, and one more failure ends it.
    strikes: Number = 0
    #: The host did not answer, or robots.txt could not be fetched, `sites.robots_probes` times:
    #: every request to the host fails with this class and this message, without being sent.
    #: "" = send.
    failure: Name = ""
    detail: Text = ""


class SiteNote(msgspec.Struct, array_like=True, omit_defaults=True):
    """Observations about one host in one report of a block; counted when the report is stored."""

    host: Name
    #: Outcomes of this report, and how many of them failed.
    requests: Number = 0
    failed: Number = 0
    #: Answers 429 and 503.
    refused: Number = 0
    #: Requests that robots.txt does not allow.
    barred: Number = 0
    elapsed_us: Number = 0
    received: Number = 0
    #: Seconds between two starts, learnt from latency and refusals.
    delay: Real = 0.0
    #: Crawl-delay of robots.txt, in seconds.
    crawl_delay: Real = 0.0
    #: No request to this host is left in the block: the hold can be released.
    left: bool = False
    #: Seconds from the report to the next allowed start.
    wait: Real = 0.0
    #: Requests not sent because the host is paused: they are packed again, uncounted.
    deferred: Numbers = msgspec.field(default_factory=list)
    #: Why the host is paused: "429", "503", "failing" or "robots"; "" = it is not.
    trouble: Text = ""
    #: Seconds that the host asked for (Retry-After); None = not given.
    cool: Real | None = None
    #: robots.txt could not be fetched, or a probe got no answer: the failure class, and the
    #: message.
    failure: Name = ""
    detail: Text = ""
    #: The host refuses connections or its name cannot be resolved: fewer probes are made.
    gone: bool = False


class SiteView(msgspec.Struct, frozen=True):
    """A host as the API shows it."""

    host: str
    rule: SiteRule
    #: The current limits; None when the host has none.
    pace: Pace | None
    crawl_delay: float
    #: The host is paused until this time; 0 = not paused.
    cooling_until: float
    reason: str
    #: Consecutive pauses: one probe at a time until a download succeeds.
    strikes: int
    requests: int
    failed: int
    refused: int
    barred: int
    deferred: int
    received: int
    #: Mean over all requests.
    latency: float
    last_at: float
    #: The agent that holds it now.
    agent: str = ""
    run: str = ""
    block: int | None = None


def site_of(host: str) -> str:
    """The name under which a host is stored: `www.example.org` is `example.org`, and an IPv6
    address has its brackets."""
    name = host.lower().rstrip(".")
    if ":" in name and name[0] != "[":
        return f"[{name}]"
    return name[4:] if name.startswith("www.") and name.count(".") > 1 else name


def is_own(host: str) -> bool:
    """Whether a host is a literal loopback or private address, to which no limits apply."""
    try:
        address = ip_address(host.strip("[]"))
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")
    return address.is_loopback or address.is_private
