"""Tokens: create them for users and agents, list and revoke them. Only digests are stored.

Run by centers, for admins. A token is shown in one answer and never again; no log contains it.
"""

from __future__ import annotations

from typing import Any

from skep.center.api.agent_names import agent_or_new
from skep.center.api.listing import listed
from skep.center.http.authentication import Role, digest_of
from skep.center.http.endpoint import Call, Endpoint
from skep.errors import InvalidInput, NotFound
from skep.model.fleet.token import Grant, token_id
from skep.model.message_bounds import is_printable
from skep.model.people.scope import Scope, checked_terms
from skep.wire.api.route import Route
from skep.wire.api.tokens import (
    CREATE_AGENT_TOKEN,
    CREATE_JOIN_TOKEN,
    CREATE_TOKEN,
    LIST_TOKENS,
    REVOKE_TOKEN,
    AgentToken,
    IssuedToken,
    JoinToken,
    NewToken,
    TokenLine,
    TokenPage,
    Tokens,
)

LABELS_LIMIT = 64


async def issue_token(call: Call) -> IssuedToken:
    """Create a token for a user."""
    message: NewToken = call.body
    _check_texts(message.name)
    auth, scope = call.services.auth, Scope(checked_terms(message.scope))
    role = Role(message.role)
    token = await auth.issue(role, "", message.name, message.seconds, scope=scope)
    return _issued(call, token)


async def issue_join_token(call: Call) -> IssuedToken:
    """Create a token with which one machine can join, once."""
    message: JoinToken = call.body
    agent = await agent_or_new(call, message.agent) if message.agent else ""
    _check_texts(message.name, message.group, *message.labels, *message.labels.values())
    if len(message.labels) > LABELS_LIMIT:
        raise InvalidInput(f"a join token may have at most {LABELS_LIMIT} labels")
    grant = Grant(message.group, message.labels)
    auth = call.services.auth
    token = await auth.issue(Role.JOIN, agent, message.name, message.seconds, grant)
    return _issued(call, token, agent)


async def issue_agent_token(call: Call) -> IssuedToken:
    """Create a token for an agent; only its digest is stored."""
    message: AgentToken = call.body
    agent = await agent_or_new(call, message.agent) if message.agent else ""
    return _issued(call, await call.services.auth.issue(Role.AGENT, agent), agent)


async def list_tokens(call: Call) -> Tokens:
    """All tokens, including used, revoked and expired ones."""
    now = call.services.clock.now()
    page: TokenPage = call.query
    if page.filter is not None:
        items, how = await listed(call, "tokens")
        return Tokens([TokenLine(view, view.state(now)) for view in items], **how)
    views = await call.services.store.tokens.all(page.limit, page.after)
    more = views[-1].id if len(views) == page.limit else None
    return Tokens([TokenLine(view, view.state(now)) for view in views], more)


async def revoke_token(call: Call) -> TokenLine:
    """Revoke a token; every center refuses it within seconds."""
    view = await call.services.store.tokens.revoke_one(call.path["token_id"])
    call.services.auth.forget()
    return TokenLine(view, view.state(call.services.clock.now()))


def _issued(call: Call, token: str, agent: str = "") -> IssuedToken:
    issued = IssuedToken(token, token_id(digest_of(token)), agent)
    call.audit.object = f"token:{issued.id}"
    return issued


def _check_texts(*texts: str) -> None:
    for text in texts:
        if not is_printable(text):
            raise InvalidInput(f"{text[:50]!r} is not valid; use printable characters")


def _make(route: Route[IssuedToken], handler: Any, summary: str) -> Endpoint:
    return Endpoint(
        route,
        Role.ADMIN,
        handler,
        summary,
        errors=(InvalidInput,),
        tag="tokens",
    )


ENDPOINTS = (
    Endpoint(
        LIST_TOKENS,
        Role.ADMIN,
        list_tokens,
        "List tokens",
        errors=(NotFound, InvalidInput),
        tag="tokens",
    ),
    _make(CREATE_TOKEN, issue_token, "Create a token for a user or a program"),
    Endpoint(
        REVOKE_TOKEN, Role.ADMIN, revoke_token, "Revoke a token", errors=(NotFound,), tag="tokens"
    ),
    _make(CREATE_JOIN_TOKEN, issue_join_token, "Create a one-time join token"),
    _make(CREATE_AGENT_TOKEN, issue_agent_token, "Create a token for an agent"),
)
