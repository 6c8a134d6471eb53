"""The store's contract for users, groups, sessions, login links and encrypted secrets. The rules
of `store/ports` apply.

Called by centers only. Session ids and login links are passed as digests, passwords as hashes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from skep.model.people.stored_secret import SecretRow
from skep.model.people.user import (
    FoundSession,
    NewSession,
    SessionView,
    User,
    UserChange,
    UserGroup,
)


class Users(Protocol):
    """Used by `access`. There is always an enabled admin once there was one: `change` and
    `remove` raise Conflict for the last."""

    async def add(
        self, name: str, role: str, groups: Sequence[str], password: str, now: float
    ) -> User:
        """`password` is a hash, "" = none. Raises Conflict for a name that exists, NotFound for an
        unknown group."""

    async def first_admin(self, name: str, now: float) -> User:
        """The enabled admin that exists longest. Without one, a user of this name is made, who has
        no password; raises Conflict if the name is taken."""

    async def all(self, limit: int = 1000, after: str = "") -> list[User]:
        """By name, those after that name."""

    async def get(self, name: str) -> User:
        """Raises NotFound."""

    async def login(self, name: str) -> tuple[User, str] | None:
        """A user with the hash of the password; None for an unknown one."""

    async def change(self, name: str, change: UserChange, now: float) -> User:
        """Disabling a user ends the sessions and login links. Raises NotFound and Conflict."""

    async def set_password(
        self, name: str, password: str, now: float, keep: bytes | None = None
    ) -> int:
        """Ends the sessions and login links of the user, except the session `keep`; returns how
        many sessions ended. Raises NotFound."""

    async def remove(self, name: str) -> User:
        """With the sessions and login links. Raises NotFound and Conflict."""

    async def set_group(self, name: str, labels: Sequence[str], now: float) -> UserGroup:
        """Create or replace a group."""

    async def groups(self) -> list[UserGroup]:
        """By name."""

    async def remove_group(self, name: str) -> UserGroup:
        """Raises NotFound, and Conflict while a user is in it: without its group, that user would
        see everything."""


class Sessions(Protocol):
    """Used by `access`."""

    async def begin(self, session: NewSession, limit: int) -> None:
        """Store a session and note the login of its user, who has at most `limit` sessions: the
        oldest end. Raises NotFound for an unknown or disabled user."""

    async def find_many(self, digests: Sequence[bytes]) -> dict[bytes, FoundSession]:
        """Those that exist, including expired ones and those of disabled users."""

    async def touch(self, uses: Mapping[bytes, float]) -> None:
        """Note when sessions were used last; unknown ones are ignored."""

    async def all(self, user: str = "", limit: int = 1000, after: str = "") -> list[SessionView]:
        """Of a user, "" = of all; newest first. `after`: those that follow the session of that id;
        raises NotFound."""

    async def end(self, digest: bytes) -> bool:
        """Whether it existed."""

    async def end_one(self, session: str, user: str = "") -> SessionView:
        """End a session by its id in `all`, "" = of any user. Raises NotFound."""

    async def end_all(self, user: str) -> int:
        """End the sessions of a user; returns how many."""

    async def forget(self, now: float, idle: float) -> int:
        """Delete expired sessions, those not used since `idle`, and expired links."""


class LoginLinks(Protocol):
    """Used by `access`. A link is valid for one login."""

    async def add(self, digest: bytes, user: str, now: float, expires_at: float) -> None:
        """Raises NotFound for an unknown or disabled user."""

    async def use(self, digest: bytes, now: float) -> str:
        """The user of a link, which is used up. Raises Unauthorized for a link that is unknown,
        used or expired, or whose user is disabled."""


class Secrets(Protocol):
    """The store never sees a value."""

    async def all(self) -> list[SecretRow]:
        """Sorted by name."""

    async def put(self, row: SecretRow, limit: int) -> None:
        """Store it, or replace the one of this name. Raises Conflict when there are `limit`
        others."""

    async def replace(self, old: SecretRow, new: SecretRow) -> bool:
        """Replace a row that is still the old one; False if it was changed or removed."""

    async def remove(self, name: str) -> bool:
        """False when there is none."""
