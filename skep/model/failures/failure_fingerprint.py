"""Groups failures that differ only in numbers, addresses and names. Pure.

A fingerprint is a failure class, a status and the text of a failure without its particulars.
Centers store it with every request that dies, so that a million failures become a few groups.
"""

from __future__ import annotations

import re
from hashlib import blake2b

import msgspec

#: Characters of the text; later text rarely is what failures have in common.
TEXT_LIMIT = 300
_DIGEST_BYTES = 6
_FAULT = "[0-9a-f]{1,12}"
#: Pattern of the name of a failure group: a fingerprint, at one host or at every host.
GROUP = rf"{_FAULT}(@[\s\S]*)?"

_PARTICULARS = re.compile(
    r"(?P<url>\b[a-z][a-z0-9+.-]*://[^\s'\"`<>]+)"
    r"|(?P<quoted>'[^']*'|\"[^\"]*\"|`[^`]*`)"
    r"|(?P<address>\[?(?:[0-9a-f]{0,4}:){2,7}[0-9a-f]{0,4}\]?(?::\d+)?"
    r"|\b\d{1,3}(?:\.\d{1,3}){3}(?::\d+)?\b)"
    r"|(?P<hex>\b0x[0-9a-f]+\b|\b[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b"
    r"|\b(?=[0-9a-f]*\d)(?=\d*[a-f])[0-9a-f]{6,}\b)"
    r"|(?P<number>\d+(?:[.,]\d+)*)",
    re.IGNORECASE,
)
_WORDS = {"url": "<url>", "quoted": "'...'", "address": "<address>", "hex": "<hex>", "number": "N"}


class FailureFingerprint(msgspec.Struct, frozen=True):
    """One kind of failure; `id` is derived from the other fields, and the same everywhere."""

    id: int
    failure: str
    status: int
    text: str


def failure_fingerprint(failure: str, status: int, detail: str) -> FailureFingerprint:
    """The fingerprint of one failed download."""
    text = without_particulars(detail)
    named = f"{failure}\0{status}\0{text}".encode(errors="replace")
    digest = blake2b(named, digest_size=_DIGEST_BYTES).digest()
    return FailureFingerprint(int.from_bytes(digest, "big") or 1, failure, status, text)


def without_particulars(detail: str) -> str:
    """The text with every number, address, URL, hex word and quoted part replaced."""
    text = _PARTICULARS.sub(lambda found: _WORDS[found.lastgroup or "number"], detail)
    return " ".join(text.split())[:TEXT_LIMIT]


def group_name(fault: int, host: str) -> str:
    """The name of a group of failures: its fingerprint, at one host."""
    return f"{fault:012x}@{host}"


def parse_group(name: str) -> tuple[int, str | None]:
    """(fingerprint, host); host None = at every host. Raises ValueError."""
    digits, at, host = name.partition("@")
    if not re.fullmatch(_FAULT, digits):
        raise ValueError(
            f"{name[:60]!r} is not a group; `skep failures` lists groups, "
            "such as 0a1b2c3d4e5f@example.com"
        )
    return int(digits, 16), host if at else None
