"""What agents call about applications: what they shall run, packages, logs. Centers only.

An agent says everything that it has and is told everything that it shall have. Secrets are
read from their files here, at the last moment, and go to no log and no store.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Mapping
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
    """How an agent's instances are, and what it shall do about each of its own."""
    message: AppsAsk = call.body
    services, agent = call.services, message.agent
    await _check_newest(call, agent)
    now = services.clock.now()
    stale = await services.store.apps.report(agent, [_told(one) for one in message.instances], now)
    services.metrics.fenced.inc(stale)
    for one in message.instances:
        await services.control.instance_is(one.run, one.no, one.state)
        if one.state in INSTANCE_ENDS:
            services.signals.runs.wake(one.run)
    has = {(one.run, one.no, one.token) for one in message.instances}
    wishes = await services.store.apps.desired(agent)
    return AppsReply([it for wish in wishes if (it := await _answer(services, wish, has))])


async def _check_newest(call: Call, agent: str) -> None:
    """By the store: an instance must not go to a process that is not the agent any more."""
    session = check_agent(call, agent)
    if not await call.services.roster.known(agent):
        raise UnknownAgent(f"agent {agent} is not registered; call /node/register first")
    if not await call.services.roster.still(agent, session):
        raise Fenced(f"agent {agent} runs elsewhere by now; this process was session {session}")


def _told(one: AppReport) -> ReportedInstance:
    fields = msgspec.structs.asdict(one)
    return ReportedInstance(**{**fields, "reason": plain(one.reason)})


async def _answer(
    services: Services, wish: DesiredInstance, has: set[tuple[str, int, int]]
) -> AppWish | None:
    """None for an instance that is over: what the agent is not told of, it ends."""
    one, state = wish.instance, wish.state
    if _leaves(services, wish):
        state = InstanceState.STOPPED
    if state is InstanceState.STOPPED and (one.run, one.no, one.token) not in has:
        # It has not begun there, or has left nothing behind.
        await services.store.apps.end(one, state, "", services.clock.now())
        return None
    try:
        known = AppSecrets.of(services.settings)
        spec = await asyncio.to_thread(_with_secrets, wish.app.spec, wish.app.secrets, known)
    except ConfigurationError as error:
        await _give_up(services, wish, error.detail)
        return None
    return AppWish(one.run, one.no, one.token, spec, state, one.round)


def _leaves(services: Services, wish: DesiredInstance) -> bool:
    """A person empties the agent. What must not be started twice may end there by itself."""
    view = services.roster.view(wish.instance.agent)
    return view is not None and view.aside == DRAINING and wish.app.spec.restart != "never"


def _with_secrets(spec: AppSpec, secrets: Mapping[str, str], known: AppSecrets) -> AppSpec:
    if not secrets:
        return spec
    values = {name: known.text(secret) for name, secret in secrets.items()}
    return msgspec.structs.replace(spec, environment={**spec.environment, **values})


async def _give_up(services: Services, wish: DesiredInstance, why: str) -> None:
    """A secret that is gone does not come back by asking, and is nobody else's trouble."""
    one, now = wish.instance, services.clock.now()
    log.warning("instance %d of run %s: %s", one.no, one.run, why)
    await services.store.apps.end(one, InstanceState.FAILED, why, now)
    await services.store.alerts.raise_(ALERT, one.run, why, now)


async def app_log(call: Call) -> AppLogReply:
    """A piece of what an instance wrote; on disk when this is answered."""
    message: AppLog = call.body
    check_agent(call, message.agent)
    if len(message.data) > APP_LOG_PIECE:
        raise TooLarge(f"a piece of log has at most {APP_LOG_PIECE} bytes")
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
        raise InvalidInput("a package is named by its SHA-256, in small letters") from None
    store, subject = call.services.store, call.who.subject
    if call.who.role is Role.AGENT and subject:
        check_agent(call, subject)
        if not await store.packages.wanted_by(digest, subject):
            raise NotFound(f"agent {subject} runs no package {digest}")
    found = await store.packages.get(digest)
    return Streamed(_chunks(call.services, found), "application/zip", found.size)


async def _chunks(services: Services, found: Package) -> AsyncIterator[bytes]:
    """One at a time: nobody holds a whole package in memory."""
    number = 0
    while part := await services.store.packages.chunk(found.digest, number):
        yield part
        number += 1


GET_PACKAGE: Route[bytes] = Route(
    "get_package", "GET", "/node/packages/{digest}", media="application/zip"
)

ENDPOINTS = (
    for_agents(
        "report_instances",
        "apps",
        apps,
        "Tell instances of applications",
        AppsAsk,
        AppsReply,
        UnknownAgent,
    ),
    for_agents(
        "send_instance_log",
        "app-log",
        app_log,
        "Send log of an instance",
        AppLog,
        AppLogReply,
        NotFound,
        StaleToken,
    ),
    Endpoint(
        GET_PACKAGE,
        Role.AGENT,
        package,
        "The package of an application",
        errors=(InvalidInput, NotFound, Fenced),
        tag="agents",
        parameters={"digest": {"type": "string", "pattern": _DIGEST}},
        notes="An agent with a credential of its own gets what it runs, and nothing else.",
    ),
)
