"""Hashes passwords with scrypt, off the event loop, a bounded number at a time. Centers only.

The parameters are stored with each hash, so that they can be raised later. A hash takes some
16 MiB and tenths of a second; callers above the bound are refused at once, so a flood of logins
costs one thread and a fixed amount of memory.
"""

from __future__ import annotations

import asyncio
import hmac
import os
from base64 import b64decode, b64encode
from hashlib import scrypt

import msgspec

from skep.errors import InvalidInput, TooManyTries

SHORTEST, LONGEST = 8, 1024
#: Hashes that are computed at the same time, and callers that may wait for one.
AT_ONCE = 1
WAITING = 32
_SALT, _KEY = 16, 32
#: Bytes that scrypt may allocate: more than any accepted parameters need.
_MEMORY = 256 * 2**20


class ScryptCost(msgspec.Struct, frozen=True):
    """n = 2**log_n blocks of 128*r bytes, p times."""

    log_n: int = 14
    r: int = 8
    p: int = 5


def check_password(password: str) -> None:
    """Raises InvalidInput for a new password that is too short or too long."""
    if not SHORTEST <= len(password) <= LONGEST:
        raise InvalidInput(
            f"the password has {len(password)} characters; use {SHORTEST} to {LONGEST}"
        )


class Passwords:
    """Computes hashes, one after the other."""

    def __init__(self, cost: ScryptCost | None = None, waiting: int = WAITING) -> None:
        self._cost = cost or ScryptCost()
        self._most = waiting
        self._inside = 0
        self._turn = asyncio.Semaphore(AT_ONCE)
        #: Compared with the passwords of unknown users, so that they cost the same time.
        self._unknown_user = _encoded(self._cost, bytes(_SALT), bytes(_KEY))

    async def hash(self, password: str) -> str:
        """A new hash with its parameters and salt. Raises InvalidInput, TooManyTries."""
        check_password(password)
        salt = os.urandom(_SALT)
        return _encoded(self._cost, salt, await self._computed(password, self._cost, salt))

    async def fits(self, password: str, encoded: str) -> bool:
        """Whether the password is the one of a hash; "" stands for a user without one, and takes
        as long. Raises TooManyTries."""
        cost, salt, key = _decoded(encoded or self._unknown_user)
        found = await self._computed(password, cost, salt)
        return hmac.compare_digest(found, key) and bool(encoded)

    async def _computed(self, password: str, cost: ScryptCost, salt: bytes) -> bytes:
        if self._inside >= self._most:
            raise TooManyTries(
                "too many logins at the same time; try again in a minute, or use a login link"
                " (`skep user link NAME`)"
            )
        self._inside += 1
        try:
            async with self._turn:
                return await asyncio.to_thread(_key, password, cost, salt)
        finally:
            self._inside -= 1


def _key(password: str, cost: ScryptCost, salt: bytes) -> bytes:
    data = password.encode("utf-8", "surrogatepass")
    n = 1 << cost.log_n
    return scrypt(data, salt=salt, n=n, r=cost.r, p=cost.p, maxmem=_MEMORY, dklen=_KEY)


def _encoded(cost: ScryptCost, salt: bytes, key: bytes) -> str:
    parts = (f"{cost.log_n},{cost.r},{cost.p}", _text(salt), _text(key))
    return f"scrypt${'$'.join(parts)}"


def _text(data: bytes) -> str:
    return b64encode(data).decode()


def _decoded(encoded: str) -> tuple[ScryptCost, bytes, bytes]:
    _scheme, numbers, salt, key = encoded.split("$")
    log_n, r, p = map(int, numbers.split(","))
    return ScryptCost(log_n, r, p), b64decode(salt), b64decode(key)
