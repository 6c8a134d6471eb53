"""Ids and secrets: ids sort by time, are hard to guess and easy to read.

For every process. Secrets come from the operating system, never from a seeded generator.
"""

from __future__ import annotations

import os
from base64 import b32hexencode
from random import Random

TOKEN_BYTES = 24


def new_id(prefix: str, now: float, rng: Random) -> str:
    """`prefix-`, 10 characters of time, 6 random ones: sorts by the time of creation."""
    stamp = int(now * 1000).to_bytes(6, "big")
    tail = rng.getrandbits(32).to_bytes(4, "big")
    return f"{prefix}-{b32hexencode(stamp + tail).decode().lower()}"


def new_secret(prefix: str) -> str:
    """A bearer token: 192 bits from the operating system, never from a seeded generator."""
    return f"{prefix}_{b32hexencode(os.urandom(TOKEN_BYTES)).decode().rstrip('=').lower()}"
