"""The endpoints that agents call for applications: desired state, packages, logs. Centers only.

An agent reports all its instances and gets the desired state of all of them. Secrets are read
from their files here, at the last moment, and never enter a log or the store.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Mapping
from functools import partial
from typing import Annotated

import msgspec
from msgspec import Meta

from skep.center.http.agent_authentication import check_agent
from skep.center.http.authentication import Role
from skep.center.http.endpoint import Call, Endpoint, Streamed, for_agents
from skep.center.services import Services
from skep.errors import (
    ConfigurationError,
    Fenced,
    InvalidInput,
    NotFound,
    StaleToken,
    TooLarge,
    UnknownAgent,
)
from skep.jobs.apps.agent_choice import DRAINING
from skep.jobs.apps.secrets import AppSecrets
from skep.model.jobs.app import INSTANCE_ENDS, AppSpec, InstanceState
from skep.results.ingest import plain
from skep.store.ports.apps import DesiredInstance, LogPiece, Package, ReportedInstance
from skep.wire.api.route import Route
from skep.wire.messages import (
    APP_LOG_PIECE,
    AppLog,
    AppLogReply,
    AppReport,
    AppsAsk,
    AppsReply,
    AppWish,
)

log = logging.getLogger(__name__)

_DIGEST = r"^[0-9a-f]{64}$"
Digest = Annotated[str, Meta(pattern=_DIGEST)]
ALERT = "app_secret"


async def apps(call: Call) -> AppsReply:
    """Store the state of an agent's instances; answer with their desired state."""
    message: AppsAsk = call.body
    services, agent = call.services, message.agent
    await _check_newest(call, agent)
    now = services.clock.now()
    reported = [_reported(one) for one in message.instances]
    stale = await services.store.apps.report(agent, reported, now)
    services.metrics.fenced.inc(stale)
    for one in message.instances:
        await services.control.instance_is(one.run, one.no, one.state)
        if one.state in INSTANCE_ENDS:
            services.signals.runs.wake(one.run)
    has = {(one.run, one.no, one.token) for one in message.instances}
    wishes = await services.store.apps.desired(agent)
    return AppsReply([it for wish in wishes if (it := await _answer(services, wish, has))])


async def _check_newest(call: Call, agent: str) -> None:
    """Check with the store: an instance must not go to an outdated process of the agent."""
    session = check_agent(call, agent)
    if not await call.services.roster.known(agent):
        raise UnknownAgent(f"agent {agent} is not registered; call /node/register first")
    if not await call.services.roster.still(agent, session):
        raise Fenced(f"agent {agent} has a newer process; this one is session {session}")


def _reported(one: AppReport) -> ReportedInstance:
    fields = msgspec.structs.asdict(one)
    return ReportedInstance(**{**fields, "reason": plain(one.reason)})


async def _answer(
    services: Services, wish: DesiredInstance, has: set[tuple[str, int, int]]
) -> AppWish | None:
    """None for an instance that has ended: an agent ends what is not in the answer."""
    one, state = wish.instance, wish.state
    if _leaves(services, wish):
        state = InstanceState.STOPPED
    if state is InstanceState.STOPPED and (one.run, one.no, one.token) not in has:
        # It has not started there, or has left nothing behind.
        await services.store.apps.end(one, state, "", services.clock.now())
        return None
    try:
        stored = partial(services.people.secrets.read, use="apps")
        known = AppSecrets.of(services.settings, stored=stored)
        spec = await asyncio.to_thread(_with_secrets, wish.app.spec, wish.app.secrets, known)
    except ConfigurationError as error:
        await _give_up(services, wish, error.detail)
        return None
    return AppWish(one.run, one.no, one.token, spec, state, one.round)


def _leaves(services: Services, wish: DesiredInstance) -> bool:
    """Whether the instance leaves an agent that is being drained. An instance that must not be
    started twice may end there."""
    view = services.roster.view(wish.instance.agent)
    return view is not None and view.aside == DRAINING and wish.app.spec.restart != "never"


def _with_secrets(spec: AppSpec, secrets: Mapping[str, str], known: AppSecrets) -> AppSpec:
    if not secrets:
        return spec
    values = {name: known.text(secret) for name, secret in secrets.items()}
    return msgspec.structs.replace(spec, environment={**spec.environment, **values})


async def _give_up(services: Services, wish: DesiredInstance, why: str) -> None:
    """Fail an instance whose secret is missing: a retry would not help, and other instances must
    not be affected."""
    one, now = wish.instance, services.clock.now()
    log.warning("instance %d of run %s: %s", one.no, one.run, why)
    await services.store.apps.end(one, InstanceState.FAILED, why, now)
    await services.store.alerts.raise_(ALERT, one.run, why, now)


async def app_log(call: Call) -> AppLogReply:
    """Store a piece of an instance's log; it is on disk when the answer is sent."""
    message: AppLog = call.body
    check_agent(call, message.agent)
    if len(message.data) > APP_LOG_PIECE:
        raise TooLarge(f"the piece of log exceeds {APP_LOG_PIECE} bytes; send smaller pieces")
    store = call.services.store
    app = await store.apps.get(message.run)
    if app is None:
        raise NotFound(f"run {message.run} has no instances")
    call.services.disk.check()
    fields = msgspec.structs.asdict(message)
    piece = LogPiece(**{name: fields[name] for name in LogPiece.__struct_fields__})
    limit, now = app.spec.limits.log, call.services.clock.now()
    return AppLogReply(await store.apps.add_log(message.agent, piece, limit, now))


async def package(call: Call) -> Streamed:
    """The bytes of a package, for agents that run it."""
    try:
        digest = msgspec.convert(call.path["digest"], Digest)
    except msgspec.ValidationError:
        raise InvalidInput(
            "the package digest is not valid; use its SHA-256 in lowercase hexadecimal"
        ) from None
    store, subject = call.services.store, call.who.subject
    if call.who.role is Role.AGENT and subject:
        check_agent(call, subject)
        if not await store.packages.wanted_by(digest, subject):
            raise NotFound(f"agent {subject} does not run package {digest}")
    found = await store.packages.get(digest)
    return Streamed(_chunks(call.services, found), "application/zip", found.size)


async def _chunks(services: Services, found: Package) -> AsyncIterator[bytes]:
    """One at a time, so that a whole package is never in memory."""
    number = 0
    while part := await services.store.packages.chunk(found.digest, number):
        yield part
        number += 1


GET_PACKAGE: Route[bytes] = Route(
    "get_package", "GET", "/node/packages/{digest}", media="application/zip", answer_example="PK"
)

ENDPOINTS = (
    for_agents(
        "report_instances",
        "apps",
        apps,
        "Report instances of applications",
        AppsAsk,
        AppsReply,
        UnknownAgent,
        example={"agent": "attic", "instances": []},
    ),
    for_agents(
        "send_instance_log",
        "app-log",
        app_log,
        "Send a piece of an instance's log",
        AppLog,
        AppLogReply,
        NotFound,
        StaleToken,
        example={
            "agent": "attic",
            "run": "ticker",
            "no": 0,
            "token": 1,
            "offset": 0,
            "data": "c3RhcnRlZAo=",
        },
    ),
    Endpoint(
        GET_PACKAGE,
        Role.AGENT,
        package,
        "Download the package of an application",
        errors=(InvalidInput, NotFound, Fenced),
        tag="agents",
        parameters={"digest": {"type": "string", "pattern": _DIGEST}},
        notes="An agent with its own credential gets only the packages that it runs.",
    ),
)
