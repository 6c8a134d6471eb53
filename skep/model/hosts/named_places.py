"""Places that a user named: `host:port` of a loopback or private address. Pure.

Centers collect them from start URLs and submitted URLs, and send them to agents with the
settings of the run. A link, a redirect or a DNS answer never adds one.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from ipaddress import ip_address, ip_network
from socket import inet_aton, inet_ntoa

from skep.model.hosts.url import BadUrl, read_url

#: Maximum places of one run; further ones are not added.
PLACES_LIMIT = 256
#: Characters of one place: a host name of 253, a colon and a port.
PLACE_LENGTH = 260

#: Suffixes of names that exist in private networks only, like names without a dot.
INNER_NAMES = (
    ".internal", ".local", ".localhost", ".intranet", ".private", ".corp", ".home", ".lan",
    ".home.arpa",
)  # fmt: skip
#: Addresses that a user can name. Cloud metadata, link-local and others are not allowed.
NAMEABLE = tuple(
    ip_network(text)
    for text in (
        "10.0.0.0/8", "127.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "::1/128", "fc00::/7",
    )
)  # fmt: skip

_PORTS = {"http": 80, "https": 443}


def place_in(uri: str) -> str:
    """`host:port` of an HTTP URI with a private address or a private name; "" otherwise."""
    return _place(uri[: _end_of_origin(uri)])


def places_in(uris: Iterable[str]) -> set[str]:
    """The private places that these URIs name."""
    origins = {uri[: _end_of_origin(uri)] for uri in uris}
    return {place for origin in origins if (place := _place(origin))}


def place_of(host: str, port: int) -> str:
    """The same for a host and a port; "" when the host is not private."""
    name = host.strip("[]").lower()
    if not is_inner(name):
        return ""
    return f"[{name}]:{port}" if ":" in name else f"{name}:{port}"


def is_place(text: str) -> bool:
    """Whether a text is a private place, as `place_of` writes it."""
    host, _, port = text.rpartition(":")
    fits = len(text) <= PLACE_LENGTH and port.isascii() and port.isdigit()
    return fits and len(port) <= 5 and place_of(host, int(port)) == text  # noqa: PLR2004 - 65535


@lru_cache(maxsize=4096)
def is_inner(host: str) -> bool:
    """Whether a host is loopback or private by its text alone, without DNS."""
    name = host.strip("[]").lower().rstrip(".")
    address = spelled(name)
    if address is not None:
        return _is_nameable(address)
    return bool(name) and ("." not in name or name.endswith(INNER_NAMES))


def is_loopback(host: str) -> bool:
    """Whether a host is this machine by its text alone, without DNS."""
    name = host.strip("[]").lower().rstrip(".")
    address = spelled(name)
    if address is None:
        return name == "localhost" or name.endswith(".localhost")
    try:
        return ip_address(address).is_loopback
    except ValueError:
        return False


def spelled(name: str) -> str | None:
    """The address that a name stands for, as the C library reads it: also 127.1 and 0x7f000001."""
    if ":" in name:
        return name
    try:
        return inet_ntoa(inet_aton(name))
    except OSError:
        return None


def _is_nameable(address: str) -> bool:
    try:
        found = ip_address(address)
    except ValueError:
        return False
    return any(found in network for network in NAMEABLE if network.version == found.version)


def _end_of_origin(uri: str) -> int:
    end = uri.find("/", 8)
    return len(uri) if end < 0 else end


@lru_cache(maxsize=4096)
def _place(origin: str) -> str:
    if not origin.isascii():  # spelled in two ways; centers name it by the URI that they keep
        return ""
    try:
        url = read_url(origin)
    except BadUrl:
        return ""
    port = url.port or _PORTS.get(url.scheme)
    return place_of(url.host, port) if port and url.scheme in _PORTS else ""
