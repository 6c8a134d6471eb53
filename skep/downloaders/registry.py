"""The downloader kinds of this agent, by name. Explicit, and called once.

Kinds that the operator disabled, and user code without a sandbox, are refused kinds: their
requests fail with the reason.
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
from skep.model.downloader_kinds import HTTP, PYTHON, SHELL, downloader_kind
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
    wrote: Callable[[str, str], None] = lambda _run, _text: None,
) -> Mapping[str, Kind]:
    """The kinds that an agent offers; `connections` is the maximum for one run, and `isolation`
    the result of `isolation_of` if the caller has it.

    Without the settings of an agent there is no user code. `places` were named by a user,
    `centers` are ports of centers on this machine. `as_received`: whether readers of the bodies
    decode them. `wrote` gets what the code of a run writes.
    """
    policy = EgressPolicy.of(egress, places=places, centers=centers)
    http = HttpKind(clock, rng, policy, connections=connections, as_received=as_received)
    own: list[Kind] = [http, CurlKind(http)]
    off, no_code = frozenset[str](), "it has no settings for user code"
    if agent is not None:
        isolation = isolation or isolation_of(agent)
        off, no_code = frozenset(agent.kinds_off), code_refusal(agent, isolation)
        own += [
            CodeKind(one, clock, rng, policy, isolation, agent, wrote) for one in (PYTHON, SHELL)
        ]
    added = list(plug_ins(PlugIn(clock, rng, policy, http)))
    everything = {kind.name: _switched(kind, off, no_code) for kind in (*own, *added)}
    _route(everything, own, added)
    return everything


def _route(everything: dict[str, Kind], own: Iterable[Kind], added: Iterable[Kind]) -> None:
    """Let runs of the own kinds accept URIs of schemes that another kind claims."""
    claims = {
        scheme: everything[kind.name]
        for kind in (*own, *added)
        for scheme in kind.schemes
        if scheme not in HTTP.schemes
    }
    if not claims:
        return
    for kind in own:
        if not isinstance(everything[kind.name], RefusedKind):
            everything[kind.name] = RoutedKind(kind, claims)


def _switched(kind: Kind, off: frozenset[str], no_code: str) -> Kind:
    """The kind, or its refusal: it is disabled, or takes code and `no_code` says why code is not
    allowed. By default code is allowed only in a bubblewrap sandbox."""
    if kind.name in off:
        reason = f"the downloader {kind.name!r} is disabled on this agent (agent.kinds_off)"
        return RefusedKind(kind.name, reason)
    if downloader_kind(kind.name).takes_code and no_code:
        return RefusedKind(kind.name, f"no user code on this agent: {no_code}")
    return kind


def code_refusal(agent: AgentSettings, isolation: Isolation) -> str:
    """Why user code is not offered; "" when it is."""
    if agent.code == "never":
        return "agent.code is `never`"
    if agent.code == "boxed" and not isolation.boxed:
        return f"{isolation.why_not}; set agent.code to `always` to run it without a sandbox"
    return ""
