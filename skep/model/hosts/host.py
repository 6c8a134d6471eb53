"""A site: one host as the fleet meets it, and how it is to be treated.

The center keeps a row per host and packs at most one open block that holds the host's
requests (its *hold*), so that one agent at a time sees to it and rate and concurrency are
kept over all agents and runs. How to behave travels to the agent as a `Pace`, what the
agent saw comes back as a `SiteNote`. Pure; used by centers and agents.
"""

from __future__ import annotations

from ipaddress import ip_address
from typing import Annotated

import msgspec
from msgspec import Meta

from skep.model.message_bounds import Name, Number, Numbers, Real, Text

#: Why a host rests whose robots.txt could not be fetched; a cause may follow after a colon.
ROBOTS = "robots"
#: How the sentence about a robots.txt that did not come begins.
NO_ROBOTS = "robots.txt could not be fetched"
#: What a host is in trouble for that gave no answer several times in a row.
FAILING = "failing"
#: Starts are spaced a little wider than the rate asks, so that no second holds one more.
MARGIN = 1.05


class SiteRule(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What an operator says about a host; None leaves it to the defaults."""

    #: Requests per second over the whole fleet; 0 = no limit.
    rate: Annotated[float, Meta(ge=0, le=10_000)] | None = None
    #: Downloads at the same time over the whole fleet.
    concurrency: Annotated[int, Meta(ge=1, le=1000)] | None = None
    #: Whether robots.txt is obeyed.
    robots: bool | None = None


class Pace(msgspec.Struct, frozen=True, array_like=True):
    """How an agent treats a host while a block with the host's requests is in its hands."""

    host: Name
    #: Seconds between two starts.
    spacing: Real
    #: Downloads at the same time.
    concurrency: Number
    #: Seconds before the first start.
    wait: Real = 0.0
    #: Ask robots.txt first.
    robots: bool = False
    #: Seconds between two starts that the host's answers have taught, over all agents.
    delay: Real = 0.0
    #: Coolings in a row: this is a probe, and one more failure ends it.
    strikes: Number = 0
    #: The host did not answer, or robots.txt could not be fetched, as often as
    #: `sites.robots_probes` says: every request of the host fails with this class and this
    #: sentence, without being sent. "" = ask.
    failure: Name = ""
    detail: Text = ""


class SiteNote(msgspec.Struct, array_like=True, omit_defaults=True):
    """What one report of a block says about one host; counted when the report is stored."""

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
    #: What robots.txt asks for, in seconds.
    crawl_delay: Real = 0.0
    #: Nothing of this host is left in the block: others may have it.
    left: bool = False
    #: Seconds, from the report on, before the next start is in order.
    wait: Real = 0.0
    #: Requests that were not tried because the host cools: they come again, uncounted.
    deferred: Numbers = msgspec.field(default_factory=list)
    #: Why: "429", "503", "failing" or "robots"; "" = no trouble.
    trouble: Text = ""
    #: Seconds that the host asked for (Retry-After); None = it did not.
    cool: Real | None = None
    #: robots.txt could not be fetched, or a probe got no answer: the class of the failure, and
    #: what went wrong.
    failure: Name = ""
    detail: Text = ""
    #: The host refuses connections or its name cannot be resolved: fewer probes will do.
    gone: bool = False


class SiteView(msgspec.Struct, frozen=True):
    """A site as people see it."""

    host: str
    rule: SiteRule
    #: What is in force now; None when the host has no limit.
    pace: Pace | None
    crawl_delay: float
    #: Nothing is sent before; 0 = not cooling.
    cooling_until: float
    reason: str
    #: Coolings in a row: one probe at a time until an answer is good.
    strikes: int
    requests: int
    failed: int
    refused: int
    barred: int
    deferred: int
    received: int
    #: Mean, over all requests.
    latency: float
    last_at: float
    #: Who has it in hand now.
    agent: str = ""
    run: str = ""
    block: int | None = None


def site_of(host: str) -> str:
    """The name under which a host is kept: `www.example.org` is `example.org`, and an
    address of IPv6 has its brackets."""
    name = host.lower().rstrip(".")
    if ":" in name and name[0] != "[":
        return f"[{name}]"
    return name[4:] if name.startswith("www.") and name.count(".") > 1 else name


def is_own(host: str) -> bool:
    """A loopback or private address, spelled out: nobody else's patience is at stake."""
    try:
        address = ip_address(host.strip("[]"))
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")
    return address.is_loopback or address.is_private
