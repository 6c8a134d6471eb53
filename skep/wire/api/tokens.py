"""Tokens of users, programs and agents: types and routes."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from skep.model.fleet.token import TokenView
from skep.model.message_bounds import (
    LABEL_TERM,
    PRINTABLE,
    SHORT_LIST,
    AgentOrNew,
    FilterText,
    exact,
)
from skep.model.people.scope import TERM_LIMIT, TERMS_LIMIT
from skep.wire.api.caller import Resource
from skep.wire.api.listing import Listed, PageKey
from skep.wire.api.route import Route

HOUR = 3600.0
YEARS = 100 * 365 * 24 * HOUR
TEXT_LIMIT = 200
Text = Annotated[str, Meta(max_length=TEXT_LIMIT, extra_json_schema=exact(pattern=PRINTABLE))]
Term = Annotated[str, Meta(max_length=TERM_LIMIT, extra_json_schema=exact(pattern=LABEL_TERM))]
Lifetime = Annotated[float, Meta(gt=0, le=YEARS)]


class NewToken(msgspec.Struct, forbid_unknown_fields=True):
    """A token for a user or a program; `name` is its owner. `seconds` null = until revoked."""

    role: Literal["viewer", "operator", "admin"]
    name: Text = ""
    seconds: Lifetime | None = None
    #: Labels such as `team=a`: the token sees and changes objects with one of them; none = all.
    scope: Annotated[list[Term], Meta(max_length=TERMS_LIMIT)] = msgspec.field(default_factory=list)


class JoinToken(msgspec.Struct, forbid_unknown_fields=True):
    """A token for one machine that joins as an agent. `agent` is the id that it must have, or the
    name of an agent that it takes over. The center assigns group and labels."""

    agent: AgentOrNew = ""
    group: Text = ""
    labels: Annotated[dict[Text, Text], Meta(max_length=SHORT_LIST)] = msgspec.field(
        default_factory=dict
    )
    name: Text = ""
    seconds: Lifetime = HOUR


class AgentToken(msgspec.Struct, forbid_unknown_fields=True):
    """A token that lets one agent (id or name), or with "" any agent, call the centers."""

    agent: AgentOrNew = ""


class IssuedToken(msgspec.Struct):
    """A new token, which is shown once."""

    token: str
    id: str = ""
    #: The only agent that may use it; "" = any agent.
    agent: str = ""


class TokenLine(msgspec.Struct):
    """A token, and its state: live, used, revoked or expired."""

    token: TokenView
    state: str


class TokenPage(msgspec.Struct):
    """Which tokens to list: `limit` of them, after the one with the id `after`."""

    #: Maximum number of tokens, newest first.
    limit: Annotated[int, Meta(ge=1, le=1000)] = 1000
    #: Only tokens after the one with this id; `next` of the previous answer.
    after: Annotated[str, Meta(max_length=100)] = ""
    #: A filter, see the page on filters. With it, even an empty one, pages follow `page`.
    filter: FilterText | None = None
    #: `next_page` of the last answer; empty = the first page.
    page: PageKey = ""


class Tokens(Listed):
    """Newest first, without those of runs; continue with `after=next` for older ones."""

    items: list[TokenLine]
    #: `after` of the next page; null on the last one.
    next: str | None = None


LIST_TOKENS = Route("list_tokens", "GET", "/api/v1/tokens", Tokens, asks=TokenPage)
CREATE_TOKEN = Route(
    "create_token",
    "POST",
    "/api/v1/tokens",
    IssuedToken,
    takes=NewToken,
    status=201,
    example={"role": "viewer", "name": "dashboard", "seconds": 86400.0},
)
REVOKE_TOKEN = Route("revoke_token", "DELETE", "/api/v1/tokens/{token_id}", TokenLine)
CREATE_JOIN_TOKEN = Route(
    "create_join_token",
    "POST",
    "/api/v1/join-tokens",
    IssuedToken,
    takes=JoinToken,
    status=201,
    example={"agent": "attic", "group": "home", "seconds": 3600.0},
)
CREATE_AGENT_TOKEN = Route(
    "create_agent_token",
    "POST",
    "/api/v1/agent-tokens",
    IssuedToken,
    takes=AgentToken,
    status=201,
    example={"agent": "attic"},
)


class TokensClient(Resource):
    """Calls the routes of this file."""

    async def list(self, asks: TokenPage | None = None) -> Tokens:
        """List tokens."""
        return await self._caller.call(LIST_TOKENS, asks=asks)

    async def create(self, body: NewToken) -> IssuedToken:
        """Make a token for a person or a program."""
        return await self._caller.call(CREATE_TOKEN, body=body)

    async def revoke(self, token: str) -> TokenLine:
        """Revoke a token."""
        return await self._caller.call(REVOKE_TOKEN, token)

    async def create_join(self, body: JoinToken) -> IssuedToken:
        """Make a one-time token to join with."""
        return await self._caller.call(CREATE_JOIN_TOKEN, body=body)

    async def create_agent(self, body: AgentToken) -> IssuedToken:
        """Make a token for an agent."""
        return await self._caller.call(CREATE_AGENT_TOKEN, body=body)
