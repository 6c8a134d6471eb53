"""Proxies of a run: parsing, rotation and pauses. Pure, given the time.

Runs in the thread of a downloader; centers use it to check proxies of callers. Credentials are
never part of a text about a proxy.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum, auto
from random import Random
from typing import NamedTuple
from urllib.parse import unquote, urlsplit

from skep.errors import InvalidInput
from skep.runtime.masking import MASK

SCHEMES = ("http", "socks5", "socks5h")
_LONGEST_LOGIN = 255


class Proxy(NamedTuple):
    """A parsed proxy."""

    scheme: str
    #: `host:port`, brackets around an IPv6 address.
    place: str
    #: (user, password); () = none.
    login: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{self.scheme}://{self.place}"

    def __repr__(self) -> str:
        return f"<Proxy {self}>"


def parse_proxy(url: str, whose: str = "proxy") -> Proxy:
    """Raises InvalidInput, which names the problem and never repeats the value."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port
    except ValueError:
        raise InvalidInput(
            f"{whose} is not a URL; write scheme://user:password@host:port"
        ) from None
    if parts.scheme not in SCHEMES:
        raise InvalidInput(f"{whose}: the scheme must be one of {', '.join(SCHEMES)}")
    if not host or not port or not url.isprintable() or " " in url:
        raise InvalidInput(f"{whose} needs a host and a port: {parts.scheme}://host:port")
    if parts.path not in {"", "/"} or parts.query or parts.fragment:
        raise InvalidInput(f"{whose} has text after the port; encode `/?#` in passwords")
    place = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    return Proxy(parts.scheme, place, _login(parts.username, parts.password, whose))


def _login(user: str | None, password: str | None, whose: str) -> tuple[str, ...]:
    if user is None:
        return ()
    if user == MASK:
        raise InvalidInput(f"{whose}: its credentials are masked; write the real ones")
    login = unquote(user), unquote(password or "")
    if any(len(text.encode()) > _LONGEST_LOGIN or "\0" in text for text in login):
        raise InvalidInput(
            f"{whose}: user and password may have at most {_LONGEST_LOGIN} bytes each"
        )
    if ":" in login[0]:
        raise InvalidInput(f"{whose}: a user name must not contain a colon")
    return login


class ProxyRoute:
    """One proxy or the direct route, and its state."""

    __slots__ = ("number", "proxy", "rests_until")

    def __init__(self, proxy: Proxy | None, number: int = 0) -> None:
        #: Its position in the run's list of proxies.
        self.number = number
        #: None = the agent's own address.
        self.proxy = proxy
        self.rests_until = 0.0

    def __repr__(self) -> str:
        return f"<Exit {self.proxy or 'direct'}>"


class ProxyPool:
    """Proxies alternate, starting at a random one, so that agents start differently."""

    def __init__(self, proxies: Sequence[Proxy], rest: float, rng: Random) -> None:
        self._exits = [ProxyRoute(proxy, number) for number, proxy in enumerate(proxies)] or [
            ProxyRoute(None)
        ]
        rng.shuffle(self._exits)
        self._rest = rest
        self._next = 0

    def __len__(self) -> int:
        return len(self._exits)

    def numbered(self, number: int) -> ProxyRoute | None:
        """None when there is no such proxy."""
        return next((one for one in self._exits if one.number == number), None)

    def take(self, now: float, avoid: ProxyRoute | None = None) -> ProxyRoute | None:
        """The next one that is not paused; `avoid` only if there is no other. None = none."""
        count = len(self._exits)
        turns = [self._exits[(self._next + step) % count] for step in range(count)]
        awake = [one for one in turns if one.rests_until <= now]
        chosen = next((one for one in awake if one is not avoid), None)
        if chosen is None:
            return awake[0] if awake else None
        self._next = (self._exits.index(chosen) + 1) % count
        return chosen

    def rest(self, one: ProxyRoute, now: float) -> bool:
        """Pause a proxy that does not work. False when it was paused already."""
        known = one.rests_until > now
        one.rests_until = now + self._rest
        return not known


class ProxyFailure(Enum):
    """What a failed transfer means for its proxy."""

    NONE = auto()
    #: The connection was cut, by the proxy or behind it; the cause cannot be known.
    CUT = auto()
    #: The proxy cannot be reached or refuses us.
    DEAD = auto()


class Said(NamedTuple):
    """What libcurl reports about the end of a transfer."""

    #: Its error number; 0 = none.
    error: int
    #: The status of the response; 0 = no response.
    status: int
    #: The status of an HTTP proxy for CONNECT; 0 = none.
    connect: int = 0
    #: The error of a SOCKS proxy, CURLPX_...; 0 = none.
    socks: int = 0
    #: Whether the TCP connection to the proxy was established.
    connected: bool = True


_RESOLVE_PROXY, _CONNECT, _CUT_OFF, _TIMEOUT, _NOTHING, _SEND, _RECEIVE, _PROXY = (
    5, 7, 18, 28, 52, 55, 56, 97,
)  # fmt: skip
_LOGIN_NEEDED = 407
#: Some proxies send 401 for CONNECT; in another response it could be the server's.
_NOT_YOU = frozenset({401, _LOGIN_NEEDED})
#: CURLPX_NO_AUTH and CURLPX_USER_REJECTED.
_LOGIN_REFUSED = frozenset({12, 33})
#: Replies of a working SOCKS proxy about a server that does not work, or an unknown name.
_ABOUT_THE_SERVER = frozenset({*range(17, 26), 27, 9})
#: Errors of an HTTP proxy for CONNECT: 403 is its rule for this server, 5xx is a server error.
_FIRST_PROXY_ERROR = 400


def proxy_failure(said: Said) -> ProxyFailure:
    """Whether the proxy is the cause of a failure."""
    refused = said.error == _PROXY and said.socks not in _ABOUT_THE_SERVER
    answered = said.connect >= _FIRST_PROXY_ERROR
    unreachable = said.error in {_RESOLVE_PROXY, _CONNECT} and not answered
    silent = said.error == _TIMEOUT and not said.connected
    if refused or unreachable or silent or login_refused(said):
        return ProxyFailure.DEAD
    cut = said.error in {_CUT_OFF, _NOTHING, _SEND, _RECEIVE} and not answered
    return ProxyFailure.CUT if cut else ProxyFailure.NONE


def login_refused(said: Said) -> bool:
    """Whether the proxy demands credentials, or other ones."""
    return (
        said.status == _LOGIN_NEEDED
        or said.connect in _NOT_YOU
        or (said.error == _PROXY and said.socks in _LOGIN_REFUSED)
    )
