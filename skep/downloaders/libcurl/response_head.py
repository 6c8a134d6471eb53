"""Reads the head of a response from the lines of libcurl. Pure; runs on agents.

Interim responses (1xx) and trailers arrive the same way; only the final head is used.
"""

from __future__ import annotations

import re
from email.utils import parsedate_to_datetime
from typing import NamedTuple

from skep.archive.received_headers import ReceivedHeaders

#: Maximum bytes of all header lines of one response; longer ones exceed the limit.
HEAD_LIMIT = 256 * 1024

_STATUS_LINE = re.compile(rb"HTTP/[0-9.]+ +([0-9]{3})(?: +([^\r\n]*))?")
#: 19 digits or more; 2^63 has 19.
_INVALID_LENGTH = re.compile(rb"\ncontent-length:[ \t]*[0-9]{19}")
_INTERIM = 200
_UNAUTHORIZED = 401
_DIGEST = re.compile(r"(?:^|,)\s*Digest\s", re.IGNORECASE)
#: Maximum seconds that a server may request with Retry-After.
_LONGEST_WAIT = 86_400.0


class Head(NamedTuple):
    """Status line and headers. `raw` is everything received, in lower case, for fast checks."""

    status: int
    reason: str
    headers: ReceivedHeaders
    raw: bytes

    def find(self, name: str) -> str | None:
        """All values of a header, joined by commas; `name` is lower case."""
        return self.headers.find(name.encode())

    def first(self, name: str) -> str | None:
        """The first value of a header; `name` is lower case."""
        if b"\n" + name.encode() not in self.raw:
            return None
        return next((value for key, value in self.headers if key.lower() == name), None)

    def has_invalid_length(self) -> bool:
        """A Content-Length of 2^63 or more, which libcurl ignores."""
        return _INVALID_LENGTH.search(self.raw) is not None

    def asks_for_digest(self) -> bool:
        """Whether the server demands digest authentication."""
        if self.status != _UNAUTHORIZED:
            return False
        return _DIGEST.search(self.find("www-authenticate") or "") is not None


NO_HEAD = Head(0, "", ReceivedHeaders(b""), b"")


def read_head(lines: list[bytes]) -> Head:
    """The final head; NO_HEAD when there is none."""
    found = NO_HEAD
    for start, line in enumerate(lines):
        match = _STATUS_LINE.match(line)
        if match is not None and int(match[1]) >= _INTERIM:
            reason = (match[2] or b"").decode("latin-1")
            found = _read(int(match[1]), reason, lines[start + 1 :])
            if found.status != _UNAUTHORIZED:
                break
            # libcurl may answer a 401 itself; then another head follows.
    return found


def upgrade_in(lines: list[bytes]) -> str:
    """`101 Switching Protocols`, as received; "" when there was none."""
    for line in lines:
        match = _STATUS_LINE.match(line)
        if match is not None and match[1] == b"101":
            return b" ".join(part for part in match.groups() if part).decode("latin-1")
    return ""


def is_whole(lines: list[bytes]) -> bool:
    """Whether the final head is complete: an empty line follows its status line."""
    final = [
        place
        for place, line in enumerate(lines)
        if (match := _STATUS_LINE.match(line)) and int(match[1]) >= _INTERIM
    ]
    return bool(final) and any(not line.strip() for line in lines[final[-1] + 1 :])


def _read(status: int, reason: str, lines: list[bytes]) -> Head:
    headers = ReceivedHeaders(b"".join(lines))
    return Head(status, reason, headers, headers.lower)


def retry_after(value: str | None, now: float) -> float | None:
    """Seconds to wait, from either form of Retry-After; None when it is not usable."""
    if value is None:
        return None
    value = value.strip()
    if value.isascii() and value.isdigit():
        return min(float(value[:9]), _LONGEST_WAIT)
    try:
        seconds = parsedate_to_datetime(value).timestamp() - now
    except (ValueError, TypeError, OverflowError):
        return None
    return min(max(seconds, 0.0), _LONGEST_WAIT)
