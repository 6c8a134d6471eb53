"""Parses the URI of a request and builds a URL that is safe for libcurl.

Pure; runs on agents for every hop. libcurl only gets URLs that were built here, so that two
parsers cannot disagree about the host, and a URL never contains credentials.
"""

from __future__ import annotations

import re
from typing import NamedTuple
from urllib.parse import quote, unquote, urljoin

from skep.model.hosts.url import BadUrl, read_url

_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
#: Characters that browsers remove from a path.
_LEFT_OUT = dict.fromkeys(map(ord, "\t\r\n"))
_PORTS = {"http": 80, "https": 443}
_KEPT_IN_PATH = "%/:=&?~+!$,;'@()*[]|^`{}\"<>\\"
_SHOWN = 100


class BadTarget(Exception):
    """Not a URI that can be downloaded over HTTP; the text says why."""


class Target(NamedTuple):
    """The destination of one hop."""

    #: Scheme, host, port and path: no credentials, no fragment.
    url: str
    #: The host without its port, for politeness.
    host: str
    #: `scheme://host:port`; secrets are never sent to another one.
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
    try:
        url = read_url(uri.strip())
    except BadUrl as error:
        raise BadTarget(f"not a URL: {error}") from error
    if url.scheme not in _PORTS:
        raise BadTarget(f"scheme {url.scheme[:_SHOWN]!r} is not supported; use http or https")
    default = _PORTS[url.scheme]
    base = f"{url.scheme}://{url.host}"
    origin = f"{base}:{url.port or default}"
    if url.plain:
        return Target(uri.strip(), url.host, origin)
    if url.port not in {0, default}:
        base = origin
    return Target(base + _path(url.rest), url.host.strip("[]"), origin, _login(url.credentials))


def join_target(base: str, location: str) -> Target:
    """The destination of a redirect; raises BadTarget."""
    location = location.strip()
    if _CONTROL.search(location):
        # Joining would remove some of them, also from a host.
        raise BadTarget(f"redirect to {location[:_SHOWN]!r}: it contains a control character")
    try:
        joined = urljoin(base, location)
    except ValueError as error:
        raise BadTarget(f"redirect to {location[:_SHOWN]!r}: {error}") from error
    return parse_target(joined)


def _path(rest: str) -> str:
    """Path and query in ASCII, the path never empty; raises BadTarget."""
    try:
        rest = quote(rest.translate(_LEFT_OUT), safe=_KEPT_IN_PATH)
    except UnicodeError as error:
        raise BadTarget(f"not a URL: {error}") from error
    return rest if rest.startswith("/") else f"/{rest}"


def _login(credentials: str) -> tuple[str, ...]:
    if not credentials:
        return ()
    user, _, password = credentials.partition(":")
    return unquote(user), unquote(password)
