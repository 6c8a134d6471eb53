"""Decides which addresses a download may connect to. Pure; agents check every new socket.

Public unicast is allowed, everything else only if `egress.allow` lists it; `egress.deny` has
precedence over both. With `egress.named`, a loopback or private address is allowed too if a user
named that host and port. The address that is about to be connected is checked, so neither unusual
spellings nor a name that changes its address can bypass the policy.
"""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Set as AbstractSet
from ipaddress import (
    IPv4Address,
    IPv4Network,
    IPv6Address,
    IPv6Network,
    ip_address,
    ip_network,
)
from socket import AF_INET, AF_INET6, SOCK_DGRAM, socket

from skep.errors import ConfigurationError
from skep.model.hosts.named_places import INNER_NAMES, is_inner, place_of, spelled
from skep.settings import EgressSettings

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network

#: The first match gives the reason. Addresses in none of them are public.
SPECIAL_V4: tuple[tuple[str, str], ...] = (
    ("0.0.0.0/8", "this network"),
    ("10.0.0.0/8", "private"),
    ("100.64.0.0/10", "shared by carriers"),
    ("127.0.0.0/8", "loopback"),
    ("168.63.129.16/32", "cloud metadata"),
    ("169.254.169.254/32", "cloud metadata"),
    ("169.254.0.0/16", "link-local"),
    ("172.16.0.0/12", "private"),
    ("192.0.0.0/24", "reserved"),
    ("192.0.2.0/24", "documentation"),
    ("192.88.99.0/24", "6to4 relay"),
    ("192.168.0.0/16", "private"),
    ("198.18.0.0/15", "benchmarking"),
    ("198.51.100.0/24", "documentation"),
    ("203.0.113.0/24", "documentation"),
    ("224.0.0.0/4", "multicast"),
    ("240.0.0.0/4", "reserved"),
)

#: As above, for networks inside 2000::/3 or with a specific reason.
SPECIAL_V6: tuple[tuple[str, str], ...] = (
    ("::/128", "unspecified"),
    ("::1/128", "loopback"),
    ("64:ff9b::/96", "NAT64"),
    ("64:ff9b:1::/48", "NAT64"),
    ("100::/64", "discard"),
    ("2001::/32", "Teredo"),
    ("2001::/23", "reserved"),
    ("2001:db8::/32", "documentation"),
    ("2002::/16", "6to4"),
    ("3fff::/20", "documentation"),
    ("fc00::/7", "unique local"),
    ("fe80::/10", "link-local"),
    ("fec0::/10", "site-local"),
    ("ff00::/8", "multicast"),
)

#: A policy that allows one of these also allows internal names.
PRIVATE = ("10.0.0.1", "172.16.0.1", "192.168.0.1", "fd00::1")

GLOBAL_V6 = IPv6Network("2000::/3")
COMPATIBLE = IPv6Network("::/96")


#: Kinds of addresses that are allowed if a user named the host and the port.
NAMEABLE = frozenset({"loopback", "private", "unique local"})


class EgressPolicy:
    """Returns why an address must not be connected, or None if it may."""

    __slots__ = ("_allow", "_centers", "_deny", "_named", "_places", "_special")

    def __init__(
        self,
        allow: tuple[str, ...] = (),
        deny: tuple[str, ...] = (),
        *,
        named: bool = False,
        places: AbstractSet[str] = frozenset(),
        centers: Iterable[int] = (),
    ) -> None:
        """`named`: places that a user named are allowed; `places` are the first of them.
        `centers`: ports of centers on this machine, which no download may reach."""
        self._allow = _networks(allow, "egress.allow")
        self._deny = _networks(deny, "egress.deny")
        self._named = named
        self._places = places
        self._centers = frozenset(centers)
        self._special = [(ip_network(net), why) for net, why in SPECIAL_V4 + SPECIAL_V6]

    @classmethod
    def of(
        cls,
        settings: EgressSettings,
        *,
        places: AbstractSet[str] = frozenset(),
        centers: Iterable[int] = (),
    ) -> EgressPolicy:
        """The policy for these settings."""
        allow, deny = settings.allow, settings.deny
        return cls(allow, deny, named=settings.named, places=places, centers=centers)

    def naming(self, places: Iterable[str]) -> EgressPolicy:
        """The same policy, for work in which a user named these places (`host:port`)."""
        added = frozenset(places)
        if not (self._named and added):
            return self
        policy = EgressPolicy.__new__(EgressPolicy)
        for slot in EgressPolicy.__slots__:
            setattr(policy, slot, getattr(self, slot))
        policy._places = self._places | added  # noqa: SLF001 - its own copy
        return policy

    def naming_host(self, host: str, port: int) -> EgressPolicy:
        """The same policy, for one connection to a host that a user wrote."""
        place = place_of(host, port)
        return self.naming([place]) if place else self

    def check(self, address: str, port: int = 0, place: str = "") -> str | None:
        """The reason for a refusal, as a sentence; None = allowed. `place` is the requested
        `host:port`: the address alone does not show that a user named it."""
        try:
            asked = ip_address(address.partition("%")[0])
        except ValueError:
            return f"address {address!r} is not allowed: it is not an IP address"
        faces = [asked, *_embedded(asked)]
        if port and port in self._centers and _is_this_machine(faces[-1]):
            return f"address {address} is not allowed: port {port} belongs to the center"
        if _within(faces, self._deny):
            return f"address {address} is not allowed: egress.deny names it"
        if _within(faces, self._allow):
            return None
        why = self._not_public(faces[-1])
        if why is None or (why in NAMEABLE and self._is_named(place)):
            return None
        return f"address {address} is not allowed ({why}); {self._remedy(why, place)}"

    def check_name(self, host: str, port: int = 0) -> str | None:
        """The same for a host that a proxy connects to, of which only the name is known.

        Addresses in any spelling are checked as addresses, internal names as private. Only the
        proxy knows the address of a public name: see docs/how-to/proxies.md.
        """
        name = host.rstrip(".").lower()
        place = place_of(host, port)
        address = spelled(name)
        if address is not None:
            return self.check(address, port, place)
        if name == "localhost" or name.endswith(".localhost"):
            return self.check("127.0.0.1", port, place)
        if "." in name and not name.endswith(INNER_NAMES):
            return None
        if self._is_named(place) or any(self.check(address) is None for address in PRIVATE):
            return None
        return f"host {host} is not allowed through a proxy: it is an internal name"

    def _is_named(self, place: str) -> bool:
        """Whether a user wrote this internal name or address. A public name is not enough: its
        owner decides its address."""
        if not (self._named and place and place in self._places):
            return False
        return is_inner(place.rpartition(":")[0])

    def _remedy(self, why: str, place: str) -> str:
        if not self._named or why not in NAMEABLE:
            return "add it to egress.allow"
        shown = f"{place} is not among the start URLs and submitted URLs" if place else "no URL"
        return f"{shown}; submit it, or add it to egress.allow"

    def _not_public(self, address: Address) -> str | None:
        for network, why in self._special:
            if address in network:
                return why
        if isinstance(address, IPv6Address) and address not in GLOBAL_V6:
            return "reserved"
        return None


def _embedded(address: Address) -> list[Address]:
    """The IPv4 address inside a mapped (::ffff:a.b.c.d) or compatible (::a.b.c.d) one."""
    if not isinstance(address, IPv6Address):
        return []
    if address.ipv4_mapped is not None:
        return [address.ipv4_mapped]
    if address in COMPATIBLE and int(address) > 1:
        return [IPv4Address(int(address) & 0xFFFFFFFF)]
    return []


def _is_this_machine(address: Address) -> bool:
    """Only addresses of this machine can be bound."""
    if address.is_loopback or address.is_unspecified:
        return True
    family = AF_INET6 if isinstance(address, IPv6Address) else AF_INET
    with socket(family, SOCK_DGRAM) as probe:
        try:
            probe.bind((str(address), 0))
        except OSError:
            return False
    return True


def _within(faces: Iterable[Address], networks: list[Network]) -> bool:
    return any(face in network for face in faces for network in networks)


def _networks(texts: tuple[str, ...], setting: str) -> list[Network]:
    try:
        return [ip_network(text, strict=False) for text in texts]
    except ValueError as error:
        raise ConfigurationError(
            f"{setting}: {error}; write networks such as 10.0.0.0/8, or one address"
        ) from error
