"""Reads the credentials of a call and identifies the caller. Run by centers only.

Tokens are random, shown once, and stored as SHA-256 digests (they have 192 bits, so a slow
hash would add no protection). A valid token or session is cached for a few seconds; a revoked
one may work that long. `skep/access` decides who a caller is and what it may do.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from pathlib import Path

from skep.access.credentials import REMEMBER_SECONDS, Credentials, FoundCredential, digest_of
from skep.access.identity import ALLOWED, LOOK_ONLY, Identity, Role, check_agent_id
from skep.access.login_attempts import WRONG_TOKENS, LoginAttempts
from skep.access.sessions import Sessions
from skep.errors import ConfigurationError, Forbidden, Revoked, Unauthorized
from skep.model.fleet.token import FoundToken, Grant, token_id
from skep.model.people.scope import Scope
from skep.runtime.clock import Clock
from skep.runtime.files import UnreadableFile, read_line, write_durably
from skep.runtime.ids import new_secret
from skep.settings import AccessSettings
from skep.store.ports import Store

__all__ = [
    "ALLOWED",
    "LOOK_ONLY",
    "REMEMBER_SECONDS",
    "Auth",
    "DriverPasses",
    "Identity",
    "Role",
    "check_agent_id",
    "check_role",
    "digest_of",
    "ensure_token",
    "read_token",
]

log = logging.getLogger(__name__)

_EXPIRED = "the token has expired; ask for a new one"


class Auth:
    """Checks bearer tokens and sessions against the store."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        *,
        enabled: bool,
        wrong_tokens: int = WRONG_TOKENS,
        access: AccessSettings | None = None,
    ) -> None:
        self._store = store
        self._clock = clock
        self._enabled = enabled
        tries = LoginAttempts(clock, wrong_tokens)
        self._tokens = Credentials(self._look_up, clock, tries)
        self.sessions = Sessions(store, clock, access or AccessSettings(), tries)

    def forget(self) -> None:
        """Drop all cached tokens and sessions, because some were revoked here: the store is asked
        again."""
        self._tokens.forget()
        self.sessions.forget()

    async def identify(
        self,
        authorization: str,
        needed: Role,
        driven: str = "",
        origin: str = "",
        session: str = "",
    ) -> Identity:
        """Raises Unauthorized, Forbidden or TooManyTries. `driven` is the run whose driver may
        call too, `origin` the address of the caller, `session` the session id in its cookie, which
        counts only without a token."""
        identity = await self.caller(authorization, needed, origin, session)
        check_role(identity, needed, driven)
        return identity

    async def caller(
        self, authorization: str, needed: Role, origin: str = "", session: str = ""
    ) -> Identity:
        """The caller, whose role is not checked. Raises Unauthorized or TooManyTries."""
        if needed is Role.PUBLIC:
            return Identity(Role.PUBLIC)
        if not self._enabled:
            return Identity(Role.AGENT if needed is Role.AGENT else Role.ADMIN, who="local")
        if session and not authorization:
            return await self.sessions.find(session, origin)
        return await self._by_token(authorization, origin)

    async def _by_token(self, authorization: str, origin: str) -> Identity:
        scheme, _, token = authorization.partition(" ")
        if scheme.lower() != "bearer" or not token:
            raise Unauthorized(
                "send `Authorization: Bearer TOKEN`; commands take the token from --token-file "
                "FILE or from admin.token in --data FOLDER, and `skep token add` creates one"
            )
        digest = digest_of(token.strip())
        identity = await self._tokens.find(digest, origin)
        if identity is not None:
            return identity
        if await self._store.tokens.revoked(digest):
            raise Revoked("the token was revoked; ask for a new one")
        raise Unauthorized(
            "this center does not know the token; commands take it from --token-file FILE or "
            "from admin.token in --data FOLDER; an admin of this center creates one with "
            "`skep token add NAME --role viewer`"
        )

    def remembers(self, authorization: str) -> bool:
        """Whether the token is cached and may read; for when the store is not available."""
        token = authorization.partition(" ")[2].strip()
        who = self._tokens.cached(digest_of(token))
        return who is not None and who.role in ALLOWED[Role.VIEWER]

    async def write_uses(self) -> None:
        """Store when tokens and sessions were used last."""
        await self._store.tokens.used(self._tokens.take_uses())
        await self.sessions.write_uses()

    async def _look_up(self, digests: Sequence[bytes]) -> Mapping[bytes, FoundCredential]:
        rows = await self._store.tokens.find_many(digests)
        return {digest: _found(digest, row) for digest, row in rows.items()}

    async def adopt(self, token: str, role: Role, subject: str = "", note: str = "") -> None:
        """Accept a token that was created elsewhere, such as the one in the data folder."""
        now = self._clock.now()
        await self._store.tokens.add(digest_of(token), role, subject, now, note)

    async def issue(
        self,
        role: Role,
        subject: str,
        note: str = "",
        seconds: float | None = None,
        grant: Grant | None = None,
        scope: Scope | None = None,
    ) -> str:
        """Create a token; it is shown only this once. Valid for `seconds`, None = until it is
        revoked."""
        token = new_secret(f"skep_{role}")
        now = self._clock.now()
        until = None if seconds is None else now + seconds
        digest = digest_of(token)
        await self._store.tokens.add(digest, role, subject, now, note, until, grant, scope)
        return token


class DriverPasses:
    """Tokens for the spiders of jobs, each valid for driving one run."""

    def __init__(self, auth: Auth, store: Store) -> None:
        self._auth = auth
        self._store = store

    async def issue(self, run: str) -> str:
        return await self._auth.issue(Role.DRIVER, run)

    async def withdraw(self, run: str, token: str = "") -> None:
        """Revoke one token, or, when the run is closed, all tokens that were issued for it."""
        digest = digest_of(token) if token else None
        await self._store.tokens.revoke_driver(run, digest)


def check_role(who: Identity, needed: Role, driven: str = "") -> None:
    """Raises Forbidden for a caller whose role is not enough."""
    if needed is Role.PUBLIC or who.role in ALLOWED[needed]:
        return
    if who.role is Role.DRIVER and driven and who.subject == driven:
        return
    whose = "your user" if who.session else "the token"
    raise Forbidden(f"this needs role {needed}; {whose} has role {who.role}")


def _found(digest: bytes, row: FoundToken) -> FoundCredential:
    role, name = Role(row.role), token_id(digest)
    who = {Role.AGENT: f"agent:{row.subject or '*'}", Role.DRIVER: f"run:{row.subject}"}.get(role)
    # Agents and spiders call often, and their own records show when.
    credential = name if who is None else ""
    who = who or f"token:{row.note or name}"
    identity = Identity(role, row.subject, row.grant, who[:100], row.scope, credential)
    return FoundCredential(identity, row.expires_at, _EXPIRED)


def ensure_token(path: Path, role: Role) -> str:
    """The token in a file that only its owner can read. It is created at the first start, and
    again when the file is empty: no copy of such a token can exist."""
    if not path.exists() or path.stat().st_size == 0:
        if path.exists():
            log.warning("%s was empty; created a new token", path)
        path.parent.mkdir(parents=True, exist_ok=True)
        write_durably(path, f"{new_secret(f'skep_{role}')}\n".encode())
    return read_token(path)


def read_token(path: Path) -> str:
    """Raises ConfigurationError, which says what is wrong with the file."""
    try:
        return read_line(path)
    except UnreadableFile as error:
        raise ConfigurationError(f"token file: {error}") from error
