"""The endpoints that agents call for their work, below /node.

Run by centers. Every message is first checked against the agent's token and session. A result
is acknowledged when it is on disk, never before.
"""

from __future__ import annotations

import asyncio
from collections import Counter

from msgspec.structs import replace

from skep import __version__
from skep.center.http.agent_authentication import check_agent, handed_out, no_more
from skep.center.http.endpoint import Call, for_agents
from skep.center.services import Services
from skep.errors import (
    DiskFull,
    Forbidden,
    InvalidInput,
    OldProtocol,
    UnknownAgent,
)
from skep.model.block import BlockReport, Leased
from skep.model.fleet.agent import DESCRIPTION_LIMIT, LABELS_LIMIT, Arrival, Registration
from skep.model.fleet.token import Grant
from skep.model.message_bounds import is_printable
from skep.model.run import told_to_agents
from skep.results.ingest import plain
from skep.wire.messages import (
    OLDEST_PROTOCOL,
    PROTOCOL,
    BlockVerdict,
    Command,
    GiveBack,
    GivenBack,
    Heartbeat,
    HeartbeatReply,
    LeaseAsk,
    LeaseReply,
    Register,
    Registered,
    Report,
    ReportReply,
    SiteRules,
)


async def register(call: Call) -> Registered:
    """Register an agent and the blocks that it still holds; accepted at any age."""
    message: Register = call.body
    call.audit.object = f"agent:{message.registration.id}"
    services = call.services
    if not OLDEST_PROTOCOL <= message.protocol <= PROTOCOL:
        raise OldProtocol(f"protocol {message.protocol} is not supported; upgrade the agent")
    agent = message.registration.id
    await services.roster.known(agent)
    check_agent(call, agent)
    about = _granted(message.registration, call.who.grant)
    about = replace(about, address=about.address or call.origin)
    _check_description(about)
    own = bool(call.who.subject)
    came = Arrival(message.session, message.mark, message.marks, bound=own)
    view = await services.roster.register(about, came)
    if not view.has_beaten:  # otherwise this call was delayed and a later one arrived first
        await services.leases.abandon(agent, message.holding)
    sites = services.settings.sites
    return Registered(
        services.settings.center.heartbeat_every,
        services.settings.lanes.lease_seconds,
        services.name,
        __version__,
        services.settings.center.alive_after,
        view.session,
        SiteRules(sites.adaptive, sites.breaker_after, sites.crawl_delay_cap),
        await services.store.runs.over(message.runs) if message.runs else [],
        await services.agent_keys.of(agent),
        encoded_bodies=True,
        takes_logs=services.settings.logs.store,
    )


def _granted(about: Registration, grant: Grant) -> Registration:
    """The group and the labels that the agent joined with override those that it sends."""
    labels = {**about.labels, **grant.labels}
    return replace(about, group=grant.group or about.group, labels=labels)


def _check_description(about: Registration) -> None:
    """Raises InvalidInput: users read these texts, and every reconnect writes them again, so
    they must be printable and short."""
    labels = [text for pair in about.labels.items() for text in pair]
    texts = (about.name, about.group, about.address, about.os, about.version)
    for text in (*texts, *about.kinds, *labels):
        if len(text) > DESCRIPTION_LIMIT or not is_printable(text):
            raise InvalidInput(
                f"{text[:50]!r} in a registration is not valid; use up to {DESCRIPTION_LIMIT}"
                " printable characters"
            )
    if len(about.labels) > LABELS_LIMIT or len(about.kinds) > LABELS_LIMIT:
        raise InvalidInput(f"a registration has at most {LABELS_LIMIT} labels and kinds each")


async def heartbeat(call: Call) -> HeartbeatReply:
    """Record that the agent is alive, renew its leases, send it commands."""
    message: Heartbeat = call.body
    services = call.services
    session = check_agent(call, message.agent)
    age = max(message.age, message.deaf)
    fresh = services.roster.fresh(age)
    # A heartbeat that was delayed too long says nothing about the present: it renews no lease.
    # An agent that gets no replies does not count as alive; it does after it gets this one.
    holding = message.holding if fresh else []
    # Concurrently, so that both are in one commit. A renewal for an agent that turns out to be
    # unknown is harmless: the fencing token of its block decides, as always.
    known, lost = await asyncio.gather(
        services.roster.heartbeat(message.agent, message.vitals, age, session),
        services.leases.renew(message.agent, holding),
    )
    await services.control.tickets(message.tickets)
    await services.unsent.heard(message.agent, message.vitals)
    if known:  # an acknowledgement counts, however late it arrives
        await services.roster.note_acknowledged(message.agent, message.obeyed)
    if not known or not fresh:
        return HeartbeatReply(known=known)
    commands = [*services.hub.resting(message.agent), *await _orders(services, message)]
    released = services.ended_runs.ended_in(message.runs)
    reply = HeartbeatReply(commands=commands, lost=lost, released=released)
    if message.want and await services.lease_calls.may_work(message.agent):
        blocks = await services.lease_calls.lease(message.agent, message.want, 0.0, call.gone)
        blocks = await handed_out(call, message.agent, session, blocks)
        reply.lease = await _reply(call, blocks)
    return reply


async def _orders(services: Services, message: Heartbeat) -> list[Command]:
    """The commands that the agent has not acknowledged yet."""
    view = services.roster.view(message.agent)
    if view is None or not view.pending:
        return []
    agents = services.store.agents
    open_ = [order for order in await agents.commands(message.agent) if order.ended_at is None]
    return [Command(order.name, order=order.no) for order in reversed(open_)]


async def lease(call: Call) -> LeaseReply:
    """Blocks for an agent; waits up to `wait` seconds when there are none."""
    message: LeaseAsk = call.body
    services = call.services
    session = check_agent(call, message.agent)
    if not await services.lease_calls.may_work(message.agent):
        await _look_again(call, message.agent)
    over = no_more(call, message.agent, session)
    blocks = await services.lease_calls.lease(
        message.agent, message.want, message.wait, over, message.kinds
    )
    return await _reply(call, await handed_out(call, message.agent, session, blocks))


async def _look_again(call: Call, agent: str) -> None:
    """Raises UnknownAgent or Forbidden, from the store: an agent that another center has just
    enabled may call before this center has refreshed its roster, and must not be refused."""
    services = call.services
    try:
        view = await services.roster.look(agent)
    except UnknownAgent:
        raise UnknownAgent(f"agent {agent} is not registered; call /node/register first") from None
    if not await services.lease_calls.may_work(agent):
        aside = view.aside or "disabled"
        raise Forbidden(f"agent {agent} is {aside}; enable it to give it work")


async def _reply(call: Call, blocks: list[Leased]) -> LeaseReply:
    if not blocks:
        return LeaseReply()
    services = call.services
    runs = await services.store.runs.settings_of(sorted({block.run for block in blocks}))
    told = {run: told_to_agents(settings) for run, settings in runs.items()}
    return LeaseReply(blocks, told, await services.leases.paces(blocks, runs))


async def report(call: Call) -> ReportReply:
    """Store results of blocks; they are on disk when the answer is sent."""
    message: Report = call.body
    services = call.services
    check_agent(call, message.agent)
    verdicts = await services.ingest.take(message.agent, message.blocks)
    _count(call, message, [verdict.verdict for verdict in verdicts])
    services.monitoring.collector.reported(message.blocks, verdicts)
    services.signals.pages.notify()
    if any(_frees_something(block) for block in message.blocks):
        services.signals.dispatcher.request()
    return ReportReply([BlockVerdict(v.block, v.verdict) for v in verdicts])


def _frees_something(block: BlockReport) -> bool:
    """Whether the report has a request to retry, or a host that other requests wait for."""
    if any(outcome.failure for outcome in block.outcomes):
        return True
    return any(note.left or note.deferred for note in block.sites)


def _count(call: Call, message: Report, verdicts: list[str]) -> None:
    metrics = call.services.metrics
    kinds = Counter(verdicts)
    metrics.fenced.inc(kinds["stale"])
    metrics.duplicates.inc(kinds["duplicate"])
    failures = Counter(
        outcome.failure
        for block, verdict in zip(message.blocks, verdicts, strict=True)
        if verdict == "stored"
        for outcome in block.outcomes
    )
    for failure, count in failures.items():
        metrics.outcomes.labels(failure or "none").inc(count)


async def give_back(call: Call) -> GivenBack:
    """Take back blocks that an agent will not work on."""
    message: GiveBack = call.body
    check_agent(call, message.agent)
    reason = plain(message.reason)[:DESCRIPTION_LIMIT]
    return GivenBack(await call.services.leases.give_back(message.agent, message.blocks, reason))


ENDPOINTS = (
    for_agents(
        "register_agent",
        "register",
        register,
        "Register an agent",
        Register,
        Registered,
        OldProtocol,
        audited=True,
        example={"registration": {"id": "attic", "name": "attic", "cpus": 4}},
    ),
    for_agents(
        "send_heartbeat",
        "heartbeat",
        heartbeat,
        "Send a heartbeat, renew leases",
        Heartbeat,
        HeartbeatReply,
        example={"agent": "attic", "vitals": {"cpu": 0.25, "active": 3}, "holding": [[1, 1]]},
    ),
    for_agents(
        "lease_blocks",
        "lease",
        lease,
        "Lease blocks (long poll)",
        LeaseAsk,
        LeaseReply,
        UnknownAgent,
        example={"agent": "attic", "want": 4, "wait": 0.0, "kinds": ["http"]},
    ),
    for_agents(
        "report_blocks",
        "block",
        report,
        "Report results of blocks",
        Report,
        ReportReply,
        DiskFull,
        example={"agent": "attic", "blocks": [[1, 1, [[1, "", 200, "", 52000]], True]]},
    ),
    for_agents(
        "return_blocks",
        "giveback",
        give_back,
        "Return blocks",
        GiveBack,
        GivenBack,
        example={"agent": "attic", "blocks": [[1, 1]], "reason": "the agent is draining"},
    ),
)
