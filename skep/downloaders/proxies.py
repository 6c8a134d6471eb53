"""Ways out of an agent: proxies, which one is next, which one rests. Pure, given the time.

Runs in the thread of a downloader; centers use it to check what a caller wrote. A login
is never part of anything that is said about a proxy.
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
    """A proxy, taken apart."""

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
    """Raises InvalidInput, which says what is wrong and never what was written."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port
    except ValueError:
        raise InvalidInput(
            f"{whose} is not a URL; write scheme://user:password@host:port"
        ) from None
    if parts.scheme not in SCHEMES:
        raise InvalidInput(f"{whose}: the scheme is none of {', '.join(SCHEMES)}")
    if not host or not port or not url.isprintable() or " " in url:
        raise InvalidInput(f"{whose} needs a host and a port: {parts.scheme}://host:port")
    if parts.path not in {"", "/"} or parts.query or parts.fragment:
        raise InvalidInput(f"{whose} has something behind the port; encode `/?#` in passwords")
    place = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    return Proxy(parts.scheme, place, _login(parts.username, parts.password, whose))


def _login(user: str | None, password: str | None, whose: str) -> tuple[str, ...]:
    if user is None:
        return ()
    if user == MASK:
        raise InvalidInput(f"{whose}: its login is hidden; write the real one")
    login = unquote(user), unquote(password or "")
    if any(len(text.encode()) > _LONGEST_LOGIN or "\0" in text for text in login):
        raise InvalidInput(f"{whose}: user and password have at most {_LONGEST_LOGIN} bytes each")
    if ":" in login[0]:
        raise InvalidInput(f"{whose}: a user name has no colon")
    return login


class ProxyRoute:
    """One way out, and how it has been going."""

    __slots__ = ("number", "proxy", "rests_until")

    def __init__(self, proxy: Proxy | None, number: int = 0) -> None:
        #: Its place among the run's proxies.
        self.number = number
        #: None = the agent's own address.
        self.proxy = proxy
        self.rests_until = 0.0

    def __repr__(self) -> str:
        return f"<Exit {self.proxy or 'direct'}>"


class ProxyPool:
    """Exits take turns, from a random one on, so that agents do not all begin alike."""

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
        """None when there is no such exit."""
        return next((one for one in self._exits if one.number == number), None)

    def take(self, now: float, avoid: ProxyRoute | None = None) -> ProxyRoute | None:
        """The next one that does not rest; `avoid` only if there is no other. None = none."""
        count = len(self._exits)
        turns = [self._exits[(self._next + step) % count] for step in range(count)]
        awake = [one for one in turns if one.rests_until <= now]
        chosen = next((one for one in awake if one is not avoid), None)
        if chosen is None:
            return awake[0] if awake else None
        self._next = (self._exits.index(chosen) + 1) % count
        return chosen

    def rest(self, one: ProxyRoute, now: float) -> bool:
        """It does not work: leave it alone for a while. False when that was known."""
        known = one.rests_until > now
        one.rests_until = now + self._rest
        return not known


class ProxyFailure(Enum):
    """What a failed transfer says about the proxy that it went through."""

    NONE = auto()
    #: The line was cut: by the proxy or behind it, nobody can tell.
    CUT = auto()
    #: It cannot be reached, or does not want us.
    DEAD = auto()


class Said(NamedTuple):
    """What libcurl knows about the end of a transfer."""

    #: Its error number; 0 = none.
    error: int
    #: The status of the answer; 0 = no answer.
    status: int
    #: What an HTTP proxy answered to CONNECT; 0 = nothing.
    connect: int = 0
    #: How a SOCKS proxy failed, CURLPX_...; 0 = it did not.
    socks: int = 0
    #: Whether the TCP connection to the proxy stood.
    connected: bool = True


_RESOLVE_PROXY, _CONNECT, _CUT_OFF, _TIMEOUT, _NOTHING, _SEND, _RECEIVE, _PROXY = (
    5, 7, 18, 28, 52, 55, 56, 97,
)  # fmt: skip
_LOGIN_NEEDED = 407
#: What some say to CONNECT instead; in an answer it could be the server's.
_NOT_YOU = frozenset({401, _LOGIN_NEEDED})
#: CURLPX_NO_AUTH and CURLPX_USER_REJECTED.
_LOGIN_REFUSED = frozenset({12, 33})
#: Replies of a SOCKS proxy that works, about a server that does not; and a name unknown.
_ABOUT_THE_SERVER = frozenset({*range(17, 26), 27, 9})
#: Of an HTTP proxy, to CONNECT: 403 is its rule about this server, 5xx what it met.
_FIRST_PROXY_ERROR = 400


def proxy_failure(said: Said) -> ProxyFailure:
    """Whether a proxy is to blame."""
    refused = said.error == _PROXY and said.socks not in _ABOUT_THE_SERVER
    answered = said.connect >= _FIRST_PROXY_ERROR
    unreachable = said.error in {_RESOLVE_PROXY, _CONNECT} and not answered
    silent = said.error == _TIMEOUT and not said.connected
    if refused or unreachable or silent or login_refused(said):
        return ProxyFailure.DEAD
    cut = said.error in {_CUT_OFF, _NOTHING, _SEND, _RECEIVE} and not answered
    return ProxyFailure.CUT if cut else ProxyFailure.NONE


def login_refused(said: Said) -> bool:
    """Whether the proxy wants a login, or another one."""
    return (
        said.status == _LOGIN_NEEDED
        or said.connect in _NOT_YOU
        or (said.error == _PROXY and said.socks in _LOGIN_REFUSED)
    )
