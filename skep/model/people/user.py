"""Users, their groups and their sessions, as stores keep them and the API shows them. Pure.

A password is never part of these types; stores keep its hash apart.
"""

from __future__ import annotations

import re

import msgspec

from skep.errors import InvalidInput
from skep.model.people.scope import Scope

#: Names of users and groups. No colon: audit rows write `token:NAME` and `agent:ID` beside users.
NAME_PATTERN = r"^[a-z0-9][a-z0-9._@+-]{0,63}$"
_NAME = re.compile(NAME_PATTERN)
#: Bytes of a digest that identify a session; too few to derive it.
NAMED_BY = 8


def check_name(name: str, what: str = "user name") -> None:
    """Raises InvalidInput."""
    if _NAME.fullmatch(name) is None or name.endswith("\n"):
        raise InvalidInput(
            f"{what} {name[:64]!r} is not valid; use 1 to 64 of the characters a-z, 0-9, '.', '_',"
            " '@', '+' and '-', and begin with a letter or a digit"
        )


class User(msgspec.Struct, frozen=True):
    """A user without the password."""

    #: Name of the user.
    name: str
    #: Role of the user: viewer, operator or admin.
    role: str
    #: Groups that limit what the user sees; none = the user sees everything.
    groups: tuple[str, ...]
    created_at: float
    changed_at: float
    #: A disabled user cannot log in and has no sessions.
    disabled: bool = False
    #: Whether the user can log in with a password; otherwise with a login link only.
    has_password: bool = False
    #: Time of the last login, in seconds since the epoch; null = never.
    login_at: float | None = None


class UserChange(msgspec.Struct, frozen=True):
    """What to change about a user; None = leave it."""

    role: str | None = None
    groups: tuple[str, ...] | None = None
    disabled: bool | None = None


class UserGroup(msgspec.Struct, frozen=True):
    """A group: its members see and change objects with one of its labels."""

    #: Name of the group.
    name: str
    #: Terms such as `team=a`.
    labels: tuple[str, ...]
    created_at: float


class NewSession(msgspec.Struct, frozen=True):
    """A session that begins; `digest` is that of its random id."""

    digest: bytes
    user: str
    created_at: float
    expires_at: float
    address: str = ""
    #: The program of the user, as it describes itself.
    client: str = ""
    #: How the user logged in: password, link.
    method: str = ""


class FoundSession(msgspec.Struct, frozen=True):
    """A session that exists, with what its user may do now."""

    user: str
    role: str
    disabled: bool
    scope: Scope
    created_at: float
    seen_at: float
    expires_at: float


class SessionView(msgspec.Struct, frozen=True):
    """A session in a list."""

    #: Id of the session; not its secret.
    id: str
    #: Name of the user.
    user: str
    created_at: float
    #: Time of its last use, to the minute, in seconds since the epoch.
    seen_at: float
    #: Time at which it ends, in seconds since the epoch; it ends earlier if it is not used.
    expires_at: float
    address: str
    #: The program of the user, as it describes itself.
    client: str
    #: How the user logged in: password or link.
    method: str


def session_id(digest: bytes) -> str:
    """The name of a session for users."""
    return digest[:NAMED_BY].hex()
