"""Tokens: made for people and agents, listed, revoked. Only digests are ever kept.

Run by centers, for admins. A token is shown in one answer and nowhere else, in no log either.
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from skep.center.api.agent_names import agent_or_new
from skep.center.auth import Role, digest_of
from skep.center.endpoint import Call, Endpoint
from skep.errors import InvalidInput, NotFound
from skep.model.bounds import PRINTABLE, SHORT_LIST, exact, is_printable
from skep.model.token import Grant, TokenView, token_id

HOUR = 3600.0
YEARS = 100 * 365 * 24 * HOUR
TEXT_LIMIT = 200
LABELS_LIMIT = 64

Text = Annotated[str, Meta(max_length=TEXT_LIMIT, extra_json_schema=exact(pattern=PRINTABLE))]
Lifetime = Annotated[float, Meta(gt=0, le=YEARS)]


class NewToken(msgspec.Struct, forbid_unknown_fields=True):
    """For a person or a program; `name` says whose it is. `seconds` null = until revoked."""

    role: Literal["viewer", "operator", "admin"]
    name: Text = ""
    seconds: Lifetime | None = None


class JoinToken(msgspec.Struct, forbid_unknown_fields=True):
    """For one machine that shall be an agent. `agent` is the id that it must have, or the name
    of an agent that it shall take over. Group and labels are the center's word."""

    agent: str = ""
    group: Text = ""
    labels: Annotated[dict[Text, Text], Meta(max_length=SHORT_LIST)] = msgspec.field(
        default_factory=dict
    )
    name: Text = ""
    seconds: Lifetime = HOUR


class AgentToken(msgspec.Struct, forbid_unknown_fields=True):
    """A token that lets one agent, by its id or its name, or with "" any agent, talk to the
    centers."""

    agent: str = ""


class IssuedToken(msgspec.Struct):
    """Shown once."""

    token: str
    id: str = ""
    #: The one agent that it is for, "" = whoever uses it.
    agent: str = ""


class TokenLine(msgspec.Struct):
    """A token, and what it is good for now: live, used, revoked or expired."""

    token: TokenView
    state: str


class TokenPage(msgspec.Struct):
    """Which tokens to list: `limit` of them, behind the one with the id `after`."""

    #: Number of tokens at most, newest first.
    limit: Annotated[int, Meta(ge=1, le=1000)] = 1000
    #: Only tokens behind the one with this id; `next` of the answer before.
    after: Annotated[str, Meta(max_length=100)] = ""


class Tokens(msgspec.Struct):
    """Newest first, without those of runs; ask again with `after=next` for older ones."""

    items: list[TokenLine]
    #: What to send as `after` for the next page; null on the last one.
    next: str | None = None


async def issue_token(call: Call) -> IssuedToken:
    """A token for a person."""
    message: NewToken = call.body
    _check_texts(message.name)
    auth = call.services.auth
    return _issued(await auth.issue(Role(message.role), "", message.name, message.seconds))


async def issue_join_token(call: Call) -> IssuedToken:
    """A token with which one machine can join, once."""
    message: JoinToken = call.body
    agent = await agent_or_new(call, message.agent) if message.agent else ""
    _check_texts(message.name, message.group, *message.labels, *message.labels.values())
    if len(message.labels) > LABELS_LIMIT:
        raise InvalidInput(f"a token gives at most {LABELS_LIMIT} labels")
    grant = Grant(message.group, message.labels)
    auth = call.services.auth
    token = await auth.issue(Role.JOIN, agent, message.name, message.seconds, grant)
    return _issued(token, agent)


async def issue_agent_token(call: Call) -> IssuedToken:
    """A new agent's token; only its digest is kept."""
    message: AgentToken = call.body
    agent = await agent_or_new(call, message.agent) if message.agent else ""
    return _issued(await call.services.auth.issue(Role.AGENT, agent), agent)


async def list_tokens(call: Call) -> Tokens:
    """Everything that lets somebody in, or did."""
    now = call.services.clock.now()
    page: TokenPage = call.query
    views = await call.services.store.tokens.all(page.limit, page.after)
    more = views[-1].id if len(views) == page.limit else None
    return Tokens([TokenLine(view, view.state(now)) for view in views], more)


async def revoke_token(call: Call) -> TokenLine:
    """Out on every center within seconds."""
    view = await call.services.store.tokens.revoke_one(call.path["token_id"])
    call.services.auth.forget()
    return TokenLine(view, view.state(call.services.clock.now()))


def _issued(token: str, agent: str = "") -> IssuedToken:
    return IssuedToken(token, token_id(digest_of(token)), agent)


def _check_texts(*texts: str) -> None:
    for text in texts:
        if not is_printable(text):
            raise InvalidInput(f"{text[:50]!r}: use printable characters")


def _make(path: str, handler: object, summary: str, takes: type) -> Endpoint:
    return Endpoint(
        "POST",
        path,
        Role.ADMIN,
        handler,  # type: ignore[arg-type]  # the table's handlers all take one Call
        summary,
        takes,
        IssuedToken,
        status=201,
        errors=(InvalidInput,),
        tag="tokens",
    )


ENDPOINTS = (
    Endpoint(
        "GET",
        "/api/v1/tokens",
        Role.ADMIN,
        list_tokens,
        "List tokens",
        gives=Tokens,
        asks=TokenPage,
        errors=(NotFound,),
        tag="tokens",
    ),
    _make("/api/v1/tokens", issue_token, "Make a token for a person or a program", NewToken),
    Endpoint(
        "DELETE",
        "/api/v1/tokens/{token_id}",
        Role.ADMIN,
        revoke_token,
        "Revoke a token",
        gives=TokenLine,
        errors=(NotFound,),
        tag="tokens",
    ),
    _make("/api/v1/join-tokens", issue_join_token, "Make a one-time token to join with", JoinToken),
    _make("/api/v1/agent-tokens", issue_agent_token, "Make a token for an agent", AgentToken),
)
