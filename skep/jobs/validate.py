"""From what a caller sends to what is kept: URL, scheme, priority, fingerprint. Pure.

All or nothing: the first request that is not valid stops the whole batch, and the error
names it by its place. Runs once per accepted request, so the common case is one regular
expression and one hash.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from hashlib import blake2b
from random import Random
from urllib.parse import quote

import msgspec

from skep.errors import InvalidInput, NotAUrl, SkepError, TooLarge, UnknownScheme
from skep.model.lane import HIGHEST, LOWEST
from skep.model.request import URI_LIMIT, NewRequest
from skep.store.ports import RequestRow

FINGERPRINT_BYTES = 16
BODY_LIMIT = 1024 * 1024
#: Most requests in one call; a larger batch is sent in parts.
BATCH_LIMIT = 50_000

_URI = re.compile(r"([a-z][a-z0-9+.-]*)://([^/?#\s\\]+)([^#\s]*)(?:#\S*)?", re.IGNORECASE)
_METHOD = re.compile(r"[A-Z]{1,20}")
_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,200}")
_BAD_VALUE = re.compile(r"[\r\n\0]")
#: What may stand in a URI as it is; everything else is percent-encoded.
_KEEP = "!#$%&'()*+,/:;=?@[]~"

Offered = NewRequest | str


class Validator:
    """Knows which schemes have a downloader, and what a request without priority gets."""

    def __init__(self, schemes: Iterable[str], rng: Random) -> None:
        self._schemes = frozenset(schemes)
        self._rng = rng

    def rows(self, offered: Sequence[Offered], priority: int, now: float) -> list[RequestRow]:
        """Every request as it will be kept; raises InvalidInput that says which is wrong."""
        if len(offered) > BATCH_LIMIT:
            raise TooLarge(f"{len(offered)} requests in one call; send at most {BATCH_LIMIT}")
        rows: list[RequestRow] = []
        for place, item in enumerate(offered):
            try:
                rows.append(self._row(item, priority, now))
            except SkepError as error:
                raise type(error)(f"request {place}: {error.detail}") from None
        return rows

    def _row(self, item: Offered, priority: int, now: float) -> RequestRow:
        if isinstance(item, str):
            uri, host = self._uri(item)
            return RequestRow(fingerprint_of(uri), uri, host, priority, b"")
        uri, host = self._uri(item.uri)
        _check(item)
        return RequestRow(
            self._fingerprint(item, uri),
            uri,
            host,
            priority if item.priority is None else item.priority,
            _arguments(item),
            None if item.expires_in is None else now + item.expires_in,
        )

    def _uri(self, text: str) -> tuple[str, str]:
        """(URI in ASCII without fragment, host)."""
        found = _URI.fullmatch(text)
        if found is None:
            raise NotAUrl(f"{text[:200]!r} is not a URL; write it as scheme://host/path")
        if len(text) > URI_LIMIT:
            raise TooLarge(f"the URL has {len(text)} characters; {URI_LIMIT} is the limit")
        scheme, authority, rest = found.groups()
        scheme = scheme.lower()
        if scheme not in self._schemes:
            known = ", ".join(sorted(self._schemes))
            raise UnknownScheme(f"no downloader takes {scheme}://; known are {known}")
        if not text.isascii():
            authority, rest = _ascii_authority(authority), quote(rest, safe=_KEEP)
        credentials, _, place = authority.rpartition("@")
        host = _host(place.lower())
        at = f"{credentials}@" if credentials else ""
        return f"{scheme}://{at}{place.lower()}{rest or '/'}", host

    def _fingerprint(self, item: NewRequest, uri: str) -> bytes:
        if item.again:
            return self._rng.getrandbits(8 * FINGERPRINT_BYTES).to_bytes(FINGERPRINT_BYTES, "big")
        if item.fingerprint:
            return _digest(b"own", item.fingerprint.encode())
        if item.method == "GET" and not item.body:
            return fingerprint_of(uri)
        return _digest(item.method.encode(), uri.encode(), item.body)


def fingerprint_of(uri: str) -> bytes:
    """Of a plain GET: equal URIs are one request."""
    return blake2b(uri.encode(), digest_size=FINGERPRINT_BYTES).digest()


def _digest(*parts: bytes) -> bytes:
    # Lengths go in too: ("a", "bc") and ("ab", "c") must differ.
    framed = b"".join(len(part).to_bytes(8, "big") + part for part in parts)
    return blake2b(framed, digest_size=FINGERPRINT_BYTES).digest()


def _ascii_authority(authority: str) -> str:
    credentials, _, place = authority.rpartition("@")
    host, colon, port = place.partition(":")
    try:
        host = host.encode("idna").decode()
    except UnicodeError as error:
        raise NotAUrl(f"{place!r} is not a host name: {error}") from error
    prefix = f"{quote(credentials, safe=_KEEP)}@" if credentials else ""
    return f"{prefix}{host}{colon}{port}"


def _host(place: str) -> str:
    """Host without port; brackets of an IPv6 address stay."""
    if place.startswith("["):
        return place.partition("]")[0] + "]"
    host, _, port = place.partition(":")
    if not host or (port and not port.isdecimal()) or len(host) > 253:  # noqa: PLR2004 - DNS
        raise NotAUrl(f"{place[:200]!r} is not a host with an optional port")
    return host


def _check(item: NewRequest) -> None:
    if item.priority is not None and not HIGHEST <= item.priority <= LOWEST:
        raise InvalidInput(f"priority {item.priority} is not from {HIGHEST} to {LOWEST}")
    if not _METHOD.fullmatch(item.method):
        raise InvalidInput(f"method {item.method[:50]!r} is not a word in capitals")
    if len(item.body) > BODY_LIMIT:
        raise TooLarge(f"the body has {len(item.body)} bytes; {BODY_LIMIT} is the limit")
    if item.expires_in is not None and item.expires_in <= 0:
        raise InvalidInput("expires_in must be more than 0 seconds")
    for name, value in item.headers.items():
        check_header(name, value)


def check_header(name: str, value: str) -> None:
    """A header that could end its line early would be a second header."""
    if not _HEADER_NAME.fullmatch(name):
        raise InvalidInput(f"{name[:100]!r} is not a header name")
    if _BAD_VALUE.search(value) or not value.isprintable():
        raise InvalidInput(f"the value of header {name} has a control character")


def _arguments(item: NewRequest) -> bytes:
    """What `Work` needs beyond id and uri; nothing at all for the plain GET."""
    if item.method == "GET" and not item.headers and not item.body and not item.meta:
        return b""
    return msgspec.msgpack.encode((item.method, item.headers, item.body, item.meta))
