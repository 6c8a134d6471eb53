"""Counts the wrong tokens that an address sends, in the memory of each center. Centers only.

Tokens cannot be guessed; this limits the load that attempts put on the store. For an address
that sent too many, tokens are looked up together and slowly. A valid token is never refused.
"""

from __future__ import annotations

from collections import deque
from ipaddress import IPv6Address, ip_address

from skep.errors import TooManyTries
from skep.runtime.clock import Clock

WRONG_TOKENS = 30
#: Seconds for which a wrong token counts.
WINDOW = 60.0
#: Number of addresses that are remembered; the least recently failed one is dropped first.
ADDRESSES = 10_000
#: Bits of the IPv6 network that one customer gets: an attacker can use all its addresses.
NETWORK_BITS = 64


class LoginAttempts:
    """Counts failures by address."""

    def __init__(self, clock: Clock, limit: int = WRONG_TOKENS) -> None:
        self._clock = clock
        self._limit = limit
        self._failures: dict[str, deque[float]] = {}

    def over(self, origin: str) -> bool:
        """Whether look-ups of unknown tokens from this address wait, after too many wrong ones."""
        failures = self._failures.get(network_of(origin))
        if not origin or failures is None or len(failures) < self._limit:
            return False
        return self._clock.monotonic() - failures[0] < WINDOW

    def refusal(self, origin: str) -> TooManyTries:
        """The error for another wrong token."""
        return TooManyTries(
            f"{origin} sent {self._limit} wrong tokens within a minute; wait a minute"
        )

    def failed(self, origin: str) -> None:
        """Count a wrong token from this address."""
        if not origin:
            return
        place = network_of(origin)
        failures = self._failures.pop(place, None) or deque(maxlen=self._limit)
        failures.append(self._clock.monotonic())
        self._failures[place] = failures
        if len(self._failures) > ADDRESSES:
            del self._failures[next(iter(self._failures))]


def network_of(origin: str) -> str:
    """The address; for IPv6, the network that it belongs to."""
    try:
        address = ip_address(origin.partition("%")[0])
    except ValueError:
        return origin
    if not isinstance(address, IPv6Address) or address.is_loopback:
        return str(address)
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(IPv6Address(int(address) >> NETWORK_BITS << NETWORK_BITS))
