"""Which hosts a connection that a job names may reach. Used by centers.

A name is resolved once, every address is judged, and the connection goes to an address that
passed: a name that resolves differently a moment later changes nothing. The rule itself is
an argument, because the egress rules belong to a room above this one.
"""

from __future__ import annotations

import socket
from collections.abc import Callable
from typing import NamedTuple

from skep.errors import ConfigurationError, Unavailable

#: (host, port, address, whether a person wrote the host): why this address must not be
#: connected; None = it may.
Check = Callable[[str, int, str, bool], str | None]


class HostRules:
    """Applies a rule to the addresses of hosts."""

    def __init__(self, check: Check) -> None:
        self._check = check

    def addresses(self, host: str, port: int, *, written: bool = True) -> list[str]:
        """The addresses of a host that may be connected. Blocks: call it in a thread.

        `written` is False for hosts that a server named, as members of a cluster.
        Raises ConfigurationError when there is none, Unavailable when the name is unknown.
        """
        found = _resolved(host, port)
        refused = {address: self._check(host, port, address, written) for address in found}
        allowed = [address for address, why in refused.items() if why is None]
        if not allowed:
            raise ConfigurationError(f"{host}: {refused[found[0]]}")
        return allowed

    def connect(self, host: str, port: int, seconds: float) -> socket.socket:
        """A connected socket. Blocks. Raises OSError, and what `addresses` raises."""
        failed: OSError | None = None
        for address in self.addresses(host, port):
            try:
                made = socket.create_connection((address, port), seconds)
            except OSError as error:
                failed = error
            else:
                made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                return made
        raise failed or OSError(f"{host} has no address")


class JobLimits(NamedTuple):
    """Limits for a connection that a job names. A person who types a URL has none of them."""

    hosts: HostRules
    #: Environment variables that may sign calls; None: not known here.
    secrets: frozenset[str] | None = None


def _resolved(host: str, port: int) -> list[str]:
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except socket.gaierror as error:
        raise Unavailable(f"{host}: {error.strerror}") from error
    except (UnicodeError, ValueError, OverflowError) as error:
        raise ConfigurationError(f"{host[:200]!r} is not a host") from error
    return list(dict.fromkeys(str(entry[4][0]) for entry in found))


#: For documents that are checked without a center: nothing is connected.
UNCONNECTED = JobLimits(HostRules(lambda host, *_: f"{host} is not connected here"))
