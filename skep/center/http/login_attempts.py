"""How many wrong tokens an address may send. In memory, for each center; centers only.

Tokens cannot be guessed: this keeps those who try from using up the store. From an address
that sent too many, tokens are looked up together and slowly; a good one is never refused.
"""

from __future__ import annotations

from collections import deque
from ipaddress import IPv6Address, ip_address

from skep.errors import TooManyTries
from skep.runtime.clock import Clock

WRONG_TOKENS = 30
#: Seconds for which a wrong token counts.
WINDOW = 60.0
#: Addresses that are remembered; the one that was heard longest ago goes first.
ADDRESSES = 10_000
#: Bits of an IPv6 address that one household has: an attacker has all addresses of it.
HOUSEHOLD = 64


class LoginAttempts:
    """Counts failures by address."""

    def __init__(self, clock: Clock, limit: int = WRONG_TOKENS) -> None:
        self._clock = clock
        self._limit = limit
        self._failures: dict[str, deque[float]] = {}

    def over(self, origin: str) -> bool:
        """Whether look-ups of unknown tokens from there have to wait, after too many wrong ones."""
        failures = self._failures.get(household(origin))
        if not origin or failures is None or len(failures) < self._limit:
            return False
        return self._clock.monotonic() - failures[0] < WINDOW

    def refusal(self, origin: str) -> TooManyTries:
        """What a further wrong token gets."""
        return TooManyTries(
            f"{self._limit} wrong tokens came from {origin} within a minute; wait a minute"
        )

    def failed(self, origin: str) -> None:
        """A wrong token came from there."""
        if not origin:
            return
        place = household(origin)
        failures = self._failures.pop(place, None) or deque(maxlen=self._limit)
        failures.append(self._clock.monotonic())
        self._failures[place] = failures
        if len(self._failures) > ADDRESSES:
            del self._failures[next(iter(self._failures))]


def household(origin: str) -> str:
    """The address, or the network that an IPv6 address is one of many of."""
    try:
        address = ip_address(origin.partition("%")[0])
    except ValueError:
        return origin
    if not isinstance(address, IPv6Address) or address.is_loopback:
        return str(address)
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(IPv6Address(int(address) >> HOUSEHOLD << HOUSEHOLD))
