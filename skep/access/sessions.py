"""Sessions of users: start at login, are found by a random id, and end. Run by centers only.

A session id is new at every login, so an id that an attacker planted before is worth nothing.
Only its digest is stored. What the user may do is read with it, at most a few seconds late.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from skep.access.credentials import Credentials, FoundCredential, digest_of
from skep.access.identity import Identity, Role
from skep.access.login_attempts import LoginAttempts
from skep.errors import Unauthorized
from skep.model.people.user import FoundSession, NewSession, SessionView, session_id
from skep.runtime.clock import Clock
from skep.runtime.ids import new_secret
from skep.settings import AccessSettings
from skep.store.ports import Store

PREFIX = "skep_session"
#: Maximum sessions of one user; the oldest end.
PER_USER = 100
_ENDED = "the session has ended; log in again"


class LoginOrigin(msgspec.Struct, frozen=True):
    """Where a login came from."""

    address: str = ""
    #: The program of the user, as it describes itself.
    client: str = ""
    #: Digest of the session that the caller had before; it ends. Empty = none.
    session: bytes = b""


class Sessions:
    """The sessions of all users, as one center knows them."""

    def __init__(
        self, store: Store, clock: Clock, settings: AccessSettings, tries: LoginAttempts
    ) -> None:
        self._store = store
        self._clock = clock
        self._settings = settings
        self._known = Credentials(self._look_up, clock, tries)

    async def begin(self, user: str, method: str, origin: LoginOrigin) -> tuple[str, NewSession]:
        """A new session and its secret id. The caller's previous session ends: a browser has one
        session."""
        secret, now = new_secret(PREFIX), self._clock.now()
        session = NewSession(
            digest_of(secret),
            user,
            now,
            now + self._settings.session_seconds,
            origin.address[:64],
            _printable(origin.client)[:200],
            method,
        )
        await self._store.sessions.begin(session, PER_USER)
        if origin.session:
            await self.end(origin.session)
        return secret, session

    async def find(self, secret: str, origin: str) -> Identity:
        """Raises Unauthorized, TooManyTries."""
        found = await self._known.find(digest_of(secret), origin)
        if found is None:
            raise Unauthorized(_ENDED)
        return found

    async def end(self, digest: bytes) -> None:
        """End one session here and now, elsewhere within seconds."""
        await self._store.sessions.end(digest)
        self._known.forget()

    async def end_one(self, session: str, user: str = "") -> SessionView:
        """By its id in a list, "" = of any user; raises NotFound."""
        ended = await self._store.sessions.end_one(session, user)
        self._known.forget()
        return ended

    async def end_all(self, user: str) -> int:
        ended = await self._store.sessions.end_all(user)
        self._known.forget()
        return ended

    def forget(self) -> None:
        """Look up every session again: users were changed here."""
        self._known.forget()

    async def write_uses(self) -> None:
        """Store when sessions were used last."""
        await self._store.sessions.touch(self._known.take_uses())

    async def delete_ended(self) -> None:
        now = self._clock.now()
        await self._store.sessions.forget(now, now - self._settings.session_idle)

    async def _look_up(self, digests: Sequence[bytes]) -> Mapping[bytes, FoundCredential]:
        rows = await self._store.sessions.find_many(digests)
        return {digest: self._found(digest, row) for digest, row in rows.items()}

    def _found(self, digest: bytes, row: FoundSession) -> FoundCredential:
        idle = row.seen_at + self._settings.session_idle
        until = 0.0 if row.disabled else min(row.expires_at, idle)
        who = Identity(
            Role(row.role),
            who=row.user,
            scope=row.scope,
            credential=session_id(digest),
            session=digest,
        )
        return FoundCredential(who, until, _ENDED)


def _printable(text: str) -> str:
    return "".join(one if one.isprintable() else "?" for one in text)
