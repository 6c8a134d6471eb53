"""Looks up tokens and sessions by digest, with a cache of a few seconds. Run by centers only.

A revoked credential works until its cache entry is too old. An address that sends many wrong
credentials has to wait; a valid one is never refused.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from hashlib import sha256

import msgspec

from skep.access.identity import Identity
from skep.access.login_attempts import LoginAttempts
from skep.errors import Unauthorized
from skep.runtime.batcher import Batcher
from skep.runtime.clock import Clock

REMEMBER_SECONDS = 3.0
REMEMBER_COUNT = 10_000
#: A query to the store also renews the cached entries that expire soon: a thousand agents need
#: one query every few seconds.
RENEW_SECONDS = REMEMBER_SECONDS / 2
#: Seconds between two queries for credentials from addresses that sent many wrong ones.
SUSPECTS_EVERY = 0.25


def digest_of(token: str) -> bytes:
    return sha256(token.encode()).digest()


class FoundCredential(msgspec.Struct, frozen=True):
    """A credential that the store knows."""

    who: Identity
    expires_at: float | None
    #: The error after that time.
    expired: str

    def identity(self, now: float) -> Identity:
        """Raises Unauthorized for an expired credential."""
        if self.expires_at is not None and self.expires_at <= now:
            raise Unauthorized(self.expired)
        return self.who


LookUp = Callable[[Sequence[bytes]], Awaitable[Mapping[bytes, FoundCredential]]]


class Credentials:
    """The cache of one kind of credential; `look_up` asks the store for several digests."""

    def __init__(self, look_up: LookUp, clock: Clock, tries: LoginAttempts) -> None:
        self._look_up = look_up
        self._clock = clock
        self._tries = tries
        #: Digest: when it was found, by the monotonic clock, and what.
        self._known: dict[bytes, tuple[float, FoundCredential]] = {}
        self._revocations = 0
        #: Digests that were used since the last query.
        self._used: set[bytes] = set()
        #: Times of last uses that are not written yet.
        self._uses: dict[bytes, float] = {}
        self._questions = Batcher(self._ask)
        #: For credentials from addresses that sent many wrong ones: few queries, each for many.
        self._suspects = Batcher(self._ask, SUSPECTS_EVERY)

    def forget(self) -> None:
        """Drop the cache, because something was revoked here: the store is asked again."""
        self._revocations += 1
        self._known.clear()

    def cached(self, digest: bytes) -> Identity | None:
        """From the cache, however old; for when the store is not available."""
        known = self._known.get(digest)
        return None if known is None else known[1].who

    async def find(self, digest: bytes, origin: str) -> Identity | None:
        """None for an unknown credential. Raises Unauthorized for an expired one, TooManyTries."""
        known = self._known.get(digest)
        if known is not None and self._clock.monotonic() - known[0] < REMEMBER_SECONDS:
            self._used.add(digest)
            return self._note(digest, known[1])
        suspect = known is None and self._tries.over(origin)
        # Each suspect call has its own key: two calls with the same credential do not wait for
        # each other.
        questions, key = (self._suspects, object()) if suspect else (self._questions, digest)
        found = await questions.ask(key, digest)
        if found is None and suspect:
            raise self._tries.refusal(origin)
        if found is None:
            self._tries.failed(origin)
            return None
        return self._note(digest, found)

    def take_uses(self) -> dict[bytes, float]:
        """When each credential of a person was used last, since the previous call."""
        uses, self._uses = self._uses, {}
        return uses

    def _note(self, digest: bytes, found: FoundCredential) -> Identity:
        now = self._clock.now()
        who = found.identity(now)
        if who.credential and len(self._uses) < REMEMBER_COUNT:
            self._uses[digest] = now
        return who

    async def _ask(self, digests: list[bytes]) -> list[FoundCredential | None]:
        """Ask the store for these and for all cached ones that expire soon."""
        now, revocations = self._clock.monotonic(), self._revocations
        soon = [one for one in self._used if self._is_due(one, now) and one not in digests]
        self._used.clear()
        found = await self._look_up([*digests, *soon])
        if len(self._known) >= REMEMBER_COUNT:
            self._known.clear()
        for digest in (*digests, *soon):
            self._known.pop(digest, None)
        if revocations == self._revocations:  # otherwise the answer may be older than a revocation
            self._known |= {digest: (now, one) for digest, one in found.items()}
        return [found.get(digest) for digest in digests]

    def _is_due(self, digest: bytes, now: float) -> bool:
        known = self._known.get(digest)
        return known is not None and now - known[0] >= RENEW_SECONDS
