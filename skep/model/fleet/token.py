"""Tokens as people see them. Never the token itself: centers keep digests only.

Pure data, for centers and the command line; agents see nothing of it.
"""

from __future__ import annotations

import msgspec

from skep.model.message_bounds import Name, Texts

#: Bytes of a digest that name a token; far from enough to find it.
NAMED_BY = 8


class Grant(msgspec.Struct, frozen=True):
    """What the center says about an agent that came with a token; the agent cannot say
    otherwise. An empty group leaves that to the agent."""

    group: Name = ""
    labels: Texts = msgspec.field(default_factory=dict)


class FoundToken(msgspec.Struct, frozen=True):
    """A token that is live."""

    role: str
    subject: str
    expires_at: float | None = None
    grant: Grant = Grant()


class TokenView(msgspec.Struct, frozen=True):
    """A token in a list. `subject` is the agent or run that it is for, "" for none."""

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

    def state(self, now: float) -> str:
        """live, used, revoked or expired."""
        if self.used_by:
            return "used"
        if self.revoked:
            return "revoked"
        return "expired" if self.expires_at is not None and self.expires_at <= now else "live"


def token_id(digest: bytes) -> str:
    """How people name a token."""
    return digest[:NAMED_BY].hex()
