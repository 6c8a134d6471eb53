"""What this agent can download with: every kind by its name. Explicit, and called once.

Kinds that an operator switched off, and user code where nothing would box it, are there as
refusals: their requests end with the reason.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from collections.abc import Set as AbstractSet
from random import Random

from skep.downloaders.code.isolation import Isolation, isolation_of
from skep.downloaders.code.kinds import CodeKind
from skep.downloaders.curl import CurlKind
from skep.downloaders.egress_policy import EgressPolicy
from skep.downloaders.http import CONNECTIONS, HttpKind
from skep.downloaders.ports import Kind
from skep.downloaders.refused_kind import RefusedKind
from skep.downloaders.schemes import PlugIn, RoutedKind, plug_ins
from skep.model.downloader_kinds import PYTHON, SHELL, downloader_kind
from skep.runtime.clock import Clock
from skep.settings import AgentSettings, EgressSettings


def kinds(
    clock: Clock,
    rng: Random,
    egress: EgressSettings,
    connections: int = CONNECTIONS,
    agent: AgentSettings | None = None,
    isolation: Isolation | None = None,
    *,
    places: AbstractSet[str] = frozenset(),
    centers: Iterable[int] = (),
    as_received: Callable[[], bool] = lambda: True,
) -> Mapping[str, Kind]:
    """The kinds that an agent offers; `connections` is the most that one run may hold, and
    `isolation` what `isolation_of` found, where the caller has looked already.

    Without the settings of an agent there is no user code. `places` were named by a person,
    `centers` are ports of centers on this machine. `as_received`: whether
    those who read the bodies decode them.
    """
    policy = EgressPolicy.of(egress, places=places, centers=centers)
    http = HttpKind(clock, rng, policy, connections=connections, as_received=as_received)
    own: list[Kind] = [http, CurlKind(http)]
    off, no_code = frozenset[str](), "it has no settings for user code"
    if agent is not None:
        isolation = isolation or isolation_of(agent)
        off, no_code = frozenset(agent.kinds_off), code_refusal(agent, isolation)
        own += [CodeKind(one, clock, rng, policy, isolation, agent) for one in (PYTHON, SHELL)]
    added = list(plug_ins(PlugIn(clock, rng, policy, http)))
    everything = {kind.name: _switched(kind, off, no_code) for kind in (*own, *added)}
    claims = {scheme: everything[one.name] for one in added for scheme in one.schemes}
    if claims:
        # A run takes the schemes of plug-ins too, whatever its own downloader is.
        for kind in own:
            if not isinstance(everything[kind.name], RefusedKind):
                everything[kind.name] = RoutedKind(kind, claims)
    return everything


def _switched(kind: Kind, off: frozenset[str], no_code: str) -> Kind:
    """The kind, or its refusal: switched off, or one that takes code where `no_code` says why
    there is none. Code is on by default where bubblewrap boxes it, and only there."""
    if kind.name in off:
        reason = f"the downloader {kind.name!r} is switched off on this agent (agent.kinds_off)"
        return RefusedKind(kind.name, reason)
    if downloader_kind(kind.name).takes_code and no_code:
        return RefusedKind(kind.name, f"no user code on this agent: {no_code}")
    return kind


def code_refusal(agent: AgentSettings, isolation: Isolation) -> str:
    """Why user code is not offered; "" when it is."""
    if agent.code == "never":
        return "agent.code is `never`"
    if agent.code == "boxed" and not isolation.boxed:
        return f"{isolation.why_not}; agent.code = `always` would run it all the same"
    return ""
