"""A caller of the API: role, scope and name. Pure; used by centers.

An endpoint names the lowest role that it accepts and how its objects are scoped; nothing else
decides what a caller may do.
"""

from __future__ import annotations

from enum import StrEnum

import msgspec

from skep.errors import Forbidden, InvalidInput
from skep.model.fleet.agent import machine_of
from skep.model.fleet.token import Grant
from skep.model.message_bounds import AGENT_ID_LIMIT
from skep.model.people.scope import Scope


class Role(StrEnum):
    """What a user or a token may do; an endpoint names the lowest role that it accepts."""

    PUBLIC = "public"
    VIEWER = "viewer"
    OPERATOR = "operator"
    ADMIN = "admin"
    AGENT = "agent"
    #: A spider's process: it may drive the one run that its token is for.
    DRIVER = "driver"
    #: A machine that joins as an agent: valid for one call.
    JOIN = "join"


#: Callers with these roles may not change anything and get answers with masked credentials.
LOOK_ONLY = frozenset({Role.PUBLIC, Role.VIEWER})

#: Roles that an endpoint accepts. An agent's token is valid for the agent endpoints only.
ALLOWED: dict[Role, frozenset[Role]] = {
    Role.VIEWER: frozenset({Role.VIEWER, Role.OPERATOR, Role.ADMIN}),
    Role.OPERATOR: frozenset({Role.OPERATOR, Role.ADMIN}),
    Role.ADMIN: frozenset({Role.ADMIN}),
    Role.AGENT: frozenset({Role.AGENT}),
    Role.JOIN: frozenset({Role.JOIN}),
}


class Identity(msgspec.Struct, frozen=True):
    """A caller. `subject` of an agent's token is the only agent that it may be, "" = any."""

    role: Role
    subject: str = ""
    #: Group and labels that the center gave the agent when it joined.
    grant: Grant = Grant()
    #: Name in the audit log: a user, `token:NAME`, `agent:ID`, `run:NAME`; "" = not known.
    who: str = ""
    #: Objects that the caller may see and change; empty = all.
    scope: Scope = Scope()
    #: Id of the token or session.
    credential: str = ""
    #: Digest of the session; empty = the caller sent a token.
    session: bytes = b""

    @property
    def user(self) -> str:
        """The name of the user; "" = the caller is not a user."""
        return self.who if self.session else ""

    def may_be(self, agent: str) -> None:
        """Raises Forbidden when the token belongs to another agent. An agent of several
        processes has one token for all of them: `attic` may be `attic.1`, too."""
        named = (agent, machine_of(agent))
        if self.role is Role.AGENT and self.subject and self.subject not in named:
            raise Forbidden(f"this token is for agent {self.subject}, not for {agent}")


def check_agent_id(agent: str) -> None:
    """Raises InvalidInput. An id is used unchanged in logs, tables, lists and paths: an agent with
    a slash in its id could not be disabled, because no path could name it."""
    printable = agent.isprintable() and agent.isascii()
    if not 0 < len(agent) <= AGENT_ID_LIMIT or not printable:
        raise InvalidInput(
            f"agent id {agent[:20]!r} is not valid; use 1 to {AGENT_ID_LIMIT} printable ASCII"
            " characters"
        )
    if "/" in agent or "," in agent or not agent.strip(" ."):
        raise InvalidInput(
            f"agent id {agent[:20]!r} is not valid; use no slash, no comma, and not only dots"
        )
