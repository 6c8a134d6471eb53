"""Where a request goes: a URI taken apart and put together again, safe for libcurl.

Pure; runs on agents for every hop. libcurl only ever sees what was put together here, so
two parsers cannot disagree about the host, and a login never stands in a URL again.
"""

from __future__ import annotations

import re
from typing import NamedTuple
from urllib.parse import quote, unquote, urljoin, urlsplit

#: The usual URI, recognised in one step. Everything else takes the careful way.
_PLAIN = re.compile(r"(https?)://([a-z0-9.-]+)(?::([1-9][0-9]{0,4}))?(/[!-\"$-~]*)?")
_HOST = re.compile(r"[a-z0-9._-]+|[0-9a-f:.]*:[0-9a-f:.]*")
_PORTS = {"http": "80", "https": "443"}
_KEPT_IN_PATH = "%/:=&?~+!$,;'@()*[]|^`{}\"<>\\"
_SHOWN = 100


class BadTarget(Exception):
    """Not a URI that can be downloaded over HTTP; the text says why."""


class Target(NamedTuple):
    """One hop's destination."""

    #: Scheme, host, port and path: no login, no fragment.
    url: str
    #: What politeness counts: the host alone, without its port.
    host: str
    #: `scheme://host:port`; secrets never leave it.
    origin: str
    #: (user, password); () = none.
    login: tuple[str, ...] = ()

    @property
    def place(self) -> str:
        """`host:port`, brackets around an IPv6 address."""
        return self.origin.partition("://")[2]

    @property
    def port(self) -> int:
        return int(self.origin.rpartition(":")[2])


def parse_target(uri: str) -> Target:
    """Raises BadTarget."""
    plain = _PLAIN.fullmatch(uri)
    if plain is None:
        return _parse_carefully(uri)
    scheme, host, port, path = plain.groups()
    if path:
        return Target(uri, host, f"{scheme}://{host}:{port or _PORTS[scheme]}")
    return _assemble(scheme, host, port, "/", ())


def join_target(base: str, location: str) -> Target:
    """The destination of a redirect; raises BadTarget."""
    try:
        joined = urljoin(base, location.strip())
    except ValueError as error:
        raise BadTarget(f"redirect to {location[:_SHOWN]!r}: {error}") from error
    return parse_target(joined)


def _parse_carefully(uri: str) -> Target:
    try:
        parts = urlsplit(uri.strip())
        scheme, port = parts.scheme, parts.port
    except ValueError as error:
        raise BadTarget(f"not a URL: {error}") from error
    if scheme not in _PORTS:
        raise BadTarget(f"scheme {scheme[:_SHOWN]!r} is not allowed, only http and https are")
    path = quote(parts.path or "/", safe=_KEPT_IN_PATH)
    if parts.query:
        path += "?" + quote(parts.query, safe=_KEPT_IN_PATH)
    login: tuple[str, ...] = ()
    if parts.username is not None:
        login = (unquote(parts.username), unquote(parts.password or ""))
    text = "" if port is None else str(port)
    return _assemble(scheme, _host(parts.hostname or ""), text, path, login)


def _host(name: str) -> str:
    """ASCII, as the name service knows it; digits of any script become plain ones."""
    if not name.isascii():
        try:
            name = name.encode("idna").decode()
        except UnicodeError as error:
            raise BadTarget(f"host {name[:_SHOWN]!r} is not a name") from error
    if _HOST.fullmatch(name) is None:
        raise BadTarget(f"host {name[:_SHOWN]!r} is not a name")
    return name


def _assemble(
    scheme: str, host: str, port: str | None, path: str, login: tuple[str, ...]
) -> Target:
    default = _PORTS[scheme]
    shown = f"[{host}]" if ":" in host else host
    origin = f"{scheme}://{shown}:{port or default}"
    base = f"{scheme}://{shown}" if port in {None, "", default} else origin
    return Target(base + path, host, origin, login)
