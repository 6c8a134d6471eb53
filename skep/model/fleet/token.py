"""Tokens as the API shows them. Never the token itself: centers keep digests only.

Pure data, for centers and the command line; agents never get it.
"""

from __future__ import annotations

import msgspec

from skep.model.message_bounds import Name, Texts
from skep.model.people.scope import Scope

#: Bytes of a digest that identify a token; too few to derive it.
NAMED_BY = 8


class Grant(msgspec.Struct, frozen=True):
    """What the center assigns to an agent that joined with a token; the agent cannot override it.
    With an empty group the agent chooses."""

    group: Name = ""
    labels: Texts = msgspec.field(default_factory=dict)


class FoundToken(msgspec.Struct, frozen=True):
    """A valid token."""

    role: str
    subject: str
    expires_at: float | None = None
    grant: Grant = Grant()
    #: The name that its creator gave it.
    note: str = ""
    scope: Scope = Scope()


class TokenView(msgspec.Struct, frozen=True):
    """A token in a list. `subject` is the agent or run that it is for; "" = none."""

    id: str
    role: str
    subject: str
    note: str
    created_at: float
    expires_at: float | None
    revoked: bool
    grant: Grant
    used_by: str = ""
    used_at: float | None = None
    #: Labels of the objects that it may see and change; empty = all.
    scope: tuple[str, ...] = ()
    #: Time of its last use, to the minute, in seconds since the epoch; null = not used yet.
    last_used_at: float | None = None

    def state(self, now: float) -> str:
        """live, used, revoked or expired."""
        if self.used_by:
            return "used"
        if self.revoked:
            return "revoked"
        return "expired" if self.expires_at is not None and self.expires_at <= now else "live"


def token_id(digest: bytes) -> str:
    """The name of a token for users."""
    return digest[:NAMED_BY].hex()
