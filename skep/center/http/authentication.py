"""Identifies callers and checks what they may do. Run by centers only.

Tokens are random, shown once, and stored as SHA-256 digests (they have 192 bits, so a slow
hash would add no protection). A valid token is cached for a few seconds; a revoked one may
work that long. An address that sends many wrong tokens has to wait.
"""

from __future__ import annotations

import logging
from enum import StrEnum
from hashlib import sha256
from pathlib import Path

import msgspec

from skep.center.http.login_attempts import WRONG_TOKENS, LoginAttempts
from skep.errors import ConfigurationError, Forbidden, InvalidInput, Revoked, Unauthorized
from skep.model.fleet.agent import machine_of
from skep.model.fleet.token import Grant
from skep.model.message_bounds import AGENT_ID_LIMIT
from skep.runtime.batcher import Batcher
from skep.runtime.clock import Clock
from skep.runtime.files import UnreadableFile, read_line, write_durably
from skep.runtime.ids import new_secret
from skep.store.ports import Store

log = logging.getLogger(__name__)

REMEMBER_SECONDS = 3.0
REMEMBER_COUNT = 10_000
#: A query to the store also renews the cached tokens that expire soon: a thousand agents need
#: one query every few seconds.
RENEW_SECONDS = REMEMBER_SECONDS / 2
#: Seconds between two queries for tokens from addresses that sent many wrong ones.
SUSPECTS_EVERY = 0.25


class Role(StrEnum):
    """What a token may do; an endpoint names the lowest role that it accepts."""

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


class Identity(msgspec.Struct, frozen=True):
    """A caller. `subject` of an agent's token is the only agent that it may be, "" = any."""

    role: Role
    subject: str = ""
    #: Group and labels that the center gave the agent when it joined.
    grant: Grant = Grant()

    def may_be(self, agent: str) -> None:
        """Raises Forbidden when the token belongs to another agent. An agent of several
        processes has one token for all of them: `attic` may be `attic.1`, too."""
        named = (agent, machine_of(agent))
        if self.role is Role.AGENT and self.subject and self.subject not in named:
            raise Forbidden(f"this token is for agent {self.subject}, not for {agent}")


class _Known(msgspec.Struct, frozen=True):
    """A token that was found then."""

    at: float
    who: Identity
    expires_at: float | None

    def identity(self, now: float) -> Identity:
        if self.expires_at is not None and self.expires_at <= now:
            raise Unauthorized("the token has expired; ask for a new one")
        return self.who


class Auth:
    """Checks bearer tokens against the store."""

    def __init__(
        self, store: Store, clock: Clock, *, enabled: bool, wrong_tokens: int = WRONG_TOKENS
    ) -> None:
        self._store = store
        self._clock = clock
        self._enabled = enabled
        self._known: dict[bytes, _Known] = {}
        self._tries = LoginAttempts(clock, wrong_tokens)
        self._revocations = 0
        #: Digests that were used since the last query.
        self._used: set[bytes] = set()
        self._questions = Batcher(self._ask)
        #: For tokens from addresses that sent many wrong ones: few queries, each for many tokens.
        self._suspects = Batcher(self._ask, SUSPECTS_EVERY)

    def forget(self) -> None:
        """Drop all cached tokens, because some were revoked here: the store is asked again."""
        self._revocations += 1
        self._known.clear()

    async def identify(
        self, authorization: str, needed: Role, driven: str = "", origin: str = ""
    ) -> Identity:
        """Raises Unauthorized, Forbidden or TooManyTries. `driven` is the run whose driver may
        call too, `origin` the address of the caller."""
        if needed is Role.PUBLIC:
            return Identity(Role.PUBLIC)
        if not self._enabled:
            return Identity(Role.AGENT if needed is Role.AGENT else Role.ADMIN)
        scheme, _, token = authorization.partition(" ")
        if scheme.lower() != "bearer" or not token:
            raise Unauthorized(
                "send `Authorization: Bearer TOKEN`; commands take the token from --token-file "
                "FILE or from admin.token in --data FOLDER, and `skep token add` creates one"
            )
        identity = await self._find(digest_of(token.strip()), origin)
        if identity.role is Role.DRIVER and driven and identity.subject == driven:
            return identity
        if identity.role not in ALLOWED[needed]:
            raise Forbidden(f"this needs role {needed}; the token has role {identity.role}")
        return identity

    def remembers(self, authorization: str) -> bool:
        """Whether the token is cached and may read; for when the store is not available."""
        token = authorization.partition(" ")[2].strip()
        known = self._known.get(digest_of(token))
        return known is not None and known.who.role in ALLOWED[Role.VIEWER]

    async def _find(self, digest: bytes, origin: str) -> Identity:
        known = self._known.get(digest)
        if known is not None and self._clock.monotonic() - known.at < REMEMBER_SECONDS:
            self._used.add(digest)
            return known.identity(self._clock.now())
        suspect = known is None and self._tries.over(origin)
        # Each suspect call has its own key: two calls with the same token do not wait for each
        # other.
        questions, key = (self._suspects, object()) if suspect else (self._questions, digest)
        found = await questions.ask(key, digest)
        if found is None and suspect:
            raise self._tries.refusal(origin)
        if found is None:
            self._tries.failed(origin)
            if await self._store.tokens.revoked(digest):
                raise Revoked("the token was revoked; ask for a new one")
            raise Unauthorized(
                "this center does not know the token; commands take it from --token-file FILE or "
                "from admin.token in --data FOLDER; an admin of this center creates one with "
                "`skep token add NAME --role viewer`"
            )
        return found.identity(self._clock.now())

    async def _ask(self, digests: list[bytes]) -> list[_Known | None]:
        """Ask the store for these tokens and for all cached ones that expire soon."""
        now, revocations = self._clock.monotonic(), self._revocations
        soon = [one for one in self._used if self._is_due(one, now) and one not in digests]
        self._used.clear()
        rows = await self._store.tokens.find_many([*digests, *soon])
        found = {
            digest: _Known(now, Identity(Role(row.role), row.subject, row.grant), row.expires_at)
            for digest, row in rows.items()
        }
        if len(self._known) >= REMEMBER_COUNT:
            self._known.clear()
        for digest in (*digests, *soon):
            self._known.pop(digest, None)
        if revocations == self._revocations:  # otherwise the answer may be older than a revocation
            self._known |= found
        return [found.get(digest) for digest in digests]

    def _is_due(self, digest: bytes, now: float) -> bool:
        known = self._known.get(digest)
        return known is not None and now - known.at >= RENEW_SECONDS

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
    ) -> str:
        """Create a token; it is shown only this once. Valid for `seconds`, None = until it is
        revoked."""
        token = new_secret(f"skep_{role}")
        now = self._clock.now()
        until = None if seconds is None else now + seconds
        await self._store.tokens.add(digest_of(token), role, subject, now, note, until, grant)
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


def digest_of(token: str) -> bytes:
    return sha256(token.encode()).digest()


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
