"""Explains why requests wait for a host: a pause, another block that holds it, its rate. Pure."""

from __future__ import annotations

import msgspec

from skep.model.hosts.host import FAILING, ROBOTS, Pace
from skep.model.hosts.politeness import HostPoliteness, Politeness
from skep.model.run import RunSettings
from skep.model.states import BlockState
from skep.model.wait_reasons import Reason, Why
from skep.store.ports.waits import Hold, HostFacts
from skep.why.wording import duration, moment, rate, up_to

_USUAL = RunSettings()
#: Why a host is paused, in words; newer agents can send other reasons.
_TROUBLES = {
    "429": "429, too many requests",
    "503": "503, service unavailable",
    FAILING: "consecutive downloads failed",
    ROBOTS: "its robots.txt could not be fetched",
}


class Asker(msgspec.Struct, frozen=True):
    """The request or block that waits for a host: its run's settings, and its queue."""

    now: float
    politeness: Politeness
    run: RunSettings = _USUAL
    #: Requests to the host that come first.
    before: int = 0
    #: The block itself, which does not wait for itself.
    block: int | None = None


def host_reasons(host: HostFacts, asker: Asker) -> list[Reason]:
    """Reasons why requests to this host wait; none when it is free."""
    pace = asker.politeness.pace(host.site, asker.run, asker.now)
    if host.site.cooling_until > asker.now:
        return [cooling(host, asker.now)]
    reasons = []
    if host.hold is not None and host.hold.block not in {None, asker.block}:
        reasons.append(_held(host, host.hold, pace, asker))
    if pace is not None:
        reasons += _paced(host, pace, asker)
    return reasons


def cooling(host: HostFacts, now: float) -> Reason:
    """The reason of a paused host, which refused or failed."""
    site = host.site
    left = site.cooling_until - now
    return Reason(
        "host_cooling",
        f"host {site.host} is paused until {moment(site.cooling_until, now)} ({_trouble(site)})",
        f"none; a probe is sent in {duration(left)}, and its success ends the pause",
        site.cooling_until,
        (f"skep sites clear {site.host}",),
        {"host": site.host, "trouble": site.reason, "strikes": site.strikes},
    )


def _trouble(site: HostPoliteness) -> str:
    kind, _, cause = site.reason.partition(": ")
    if kind in {ROBOTS, FAILING} and cause:
        return cause
    return _TROUBLES.get(site.reason, site.reason or "it failed")


def _held(host: HostFacts, hold: Hold, pace: Pace | None, asker: Asker) -> Reason:
    name = host.site.host
    spacing = pace.spacing if pace is not None else hold.spacing
    wait = max(0.0, hold.until - asker.now) + asker.before * spacing
    taken = hold.state is BlockState.USING
    where = f"leased to agent {hold.agent}" if taken else "which waits for an agent"
    before = f"{up_to(asker.before, 'request')} before it, " if asker.before else ""
    return Reason(
        "host_held",
        f"host {name} is in block {hold.block}, {where} (run {hold.run});"
        f" {before}about {duration(wait)}",
        "none; the host is free when that block is done with it",
        asker.now + wait,
        (f"skep why block:{hold.block}",),
        {
            "host": name,
            "block": hold.block,
            "agent": hold.agent if taken else "",
            "run": hold.run,
            "open_in_block": hold.open,
            "before": asker.before,
            "seconds": round(wait, 3),
        },
    )


def _paced(host: HostFacts, pace: Pace, asker: Asker) -> list[Reason]:
    name = pace.host
    rule = (f"skep sites set {name} --rate R",)
    facts = {
        "host": name,
        "spacing": pace.spacing,
        "concurrency": pace.concurrency,
        "before": asker.before,
    }
    if pace.strikes:
        text = f"host {name} gets one probe at a time after {host.site.reason or 'failures'}"
        clear = (f"skep sites clear {name}",)
        return [Reason("host_probe", text, "none; a good answer ends it", do=clear, facts=facts)]
    if not pace.spacing:
        return []
    limits = f"{rate(pace.spacing)}, {pace.concurrency} at once"
    text = f"host {name} is limited to {limits}, over all agents and runs"
    frees = "none; requests are sent one after the other"
    if pace.wait:
        frees += f", the next in {pace.wait:.1f} s"
    return [Reason("host_pace", text, frees, None, rule, facts)]


def why_host(host: HostFacts, fleet_reasons: list[Reason], asker: Asker) -> Why:
    """Explains a host."""
    name = host.site.host
    reasons = host_reasons(host, asker)
    cools = host.site.cooling_until > asker.now
    held = host.hold is not None and host.hold.block is not None
    state = "cooling" if cools else "probing" if host.site.strikes else "held" if held else "free"
    if not host.known:
        text = f"host {name} is not known: it has no requests and no rule"
        reasons.insert(0, Reason("host_unknown", text, facts={"host": name}))
    waiting = cools or (held and bool(fleet_reasons))
    if not reasons:
        reasons = [Reason("host_free", f"host {name} is free", facts={"host": name})]
    return Why("site", name, state, waiting, [*(fleet_reasons if held else ()), *reasons])
