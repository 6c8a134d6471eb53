"""Packets of the git protocol: four hexadecimal digits of length, then the data. Pure.

It reads answers of unknown servers: it never reads beyond the data, never loops
without progress, and raises BadPacket for everything that is not a packet.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum

#: Bytes of the length, and of the longest packet with it.
_HEAD, LONGEST = 4, 65520
_DIGITS = frozenset(b"0123456789abcdefABCDEF")


class BadPacket(ValueError):
    """The bytes are not packets of the git protocol."""


class Mark(Enum):
    """Packets without data."""

    FLUSH = 0
    DELIMITER = 1
    RESPONSE_END = 2


def packet(text: str) -> bytes:
    """One packet with a line of text."""
    data = text.encode() + b"\n"
    if len(data) + _HEAD > LONGEST:
        raise BadPacket(f"a packet has at most {LONGEST} bytes")
    return b"%04x" % (len(data) + _HEAD) + data


def mark(which: Mark) -> bytes:
    return b"%04x" % which.value


def packets(data: bytes) -> Iterator[bytes | Mark]:
    """The packets of an answer, without line ends; raises BadPacket."""
    place, end = 0, len(data)
    while place < end:
        size = _size(data[place : place + _HEAD])
        if size < _HEAD:
            yield _mark(size)
            place += _HEAD
            continue
        if place + size > end:
            raise BadPacket("the answer ends inside a packet")
        yield data[place + _HEAD : place + size].removesuffix(b"\n")
        place += size


def _size(digits: bytes) -> int:
    if len(digits) < _HEAD or not _DIGITS.issuperset(digits):
        raise BadPacket(f"{digits!r} is not the length of a packet")
    size = int(digits, 16)
    if size > LONGEST:
        raise BadPacket(f"a packet of {size} bytes is too long")
    return size


def _mark(size: int) -> Mark:
    try:
        return Mark(size)
    except ValueError:
        raise BadPacket(f"a packet of length {size} has no meaning") from None
