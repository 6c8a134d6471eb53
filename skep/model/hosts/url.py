"""Takes a URL apart: the one place that decides what is its host. Pure.

Centers read submitted URLs with it, agents every URL and redirect that they fetch. All refuse what
two programs could read in two ways, so that none of them checks one host and connects to another.
Whether the host may be asked is decided elsewhere, by the address.
"""

from __future__ import annotations

import re
from ipaddress import IPv6Address
from typing import NamedTuple

#: The usual URL, in one step; everything else takes the careful way.
_PLAIN = re.compile(
    r"([a-z][a-z0-9+.-]*)://([a-z0-9._-]{1,253})(?::([1-9][0-9]{0,3}))?(/[!-\"$-~]*)"
)
_URL = re.compile(r"([a-z][a-z0-9+.-]*)://([^/?#]*)([^#]*)(?:#.*)?", re.IGNORECASE | re.DOTALL)
_UNSAFE = re.compile(r"[\s\\\x00-\x1f\x7f]")
_PLACE = re.compile(r"(\[[0-9a-f:.]+\]|[a-z0-9._-]{1,253})(?::([0-9]{0,5}))?")
_PORT_LIMIT = 65_535
_SHOWN = 200


class BadUrl(ValueError):
    """The text is not a URL with a host; the message says why."""


class Url(NamedTuple):
    """The parts of a URL, without its fragment."""

    #: In small letters.
    scheme: str
    #: ASCII in small letters, as the name service knows it; brackets around an IPv6 address.
    host: str
    #: 0 = none is given.
    port: int
    #: `user:password` as written; "" = none.
    credentials: str
    #: Path and query as written; may be empty, and may hold any character but `#`.
    rest: str
    #: The text is a scheme, a host, perhaps a port, and a path of printable ASCII: it is used as
    #: it is.
    plain: bool = False


def read_url(text: str) -> Url:
    """Raises BadUrl."""
    plain = _PLAIN.fullmatch(text)
    if plain is None:
        return _read_carefully(text)
    scheme, host, port, rest = plain.groups()
    return Url(scheme, host, int(port) if port else 0, "", rest, True)


def _read_carefully(text: str) -> Url:
    found = _URL.fullmatch(text)
    if found is None or _UNSAFE.search(found[2]):
        raise BadUrl(f"{text[:_SHOWN]!r} is not a URL; write it as scheme://host/path")
    scheme, authority, rest = found.groups()
    # Of several `@` the last one counts, as for libcurl and browsers.
    credentials, _, place = authority.rpartition("@")
    host, port = _read_place(place)
    return Url(scheme.lower(), host, port, credentials, rest)


def _read_place(place: str) -> tuple[str, int]:
    """(host, port) of `host:port`."""
    shown = place[:_SHOWN]
    if not place.isascii():
        name, colon, port = place.partition(":")
        try:
            place = f"{name.encode('idna').decode()}{colon}{port}"
        except UnicodeError as error:
            raise BadUrl(f"{shown!r} is not a host: {error}") from error
    # Looked at after the conversion: some letters become a `/` or an `@` by it.
    found = _PLACE.fullmatch(place.lower())
    if found is None or not _is_possible(found[1], found[2]):
        raise BadUrl(f"{shown!r} is not a host with an optional port")
    return found[1], int(found[2] or 0)


def _is_possible(host: str, port: str | None) -> bool:
    if port and not 0 < int(port) <= _PORT_LIMIT:
        return False
    return not host.startswith("[") or _is_ipv6(host[1:-1])


def _is_ipv6(text: str) -> bool:
    try:
        IPv6Address(text)
    except ValueError:
        return False
    return True
