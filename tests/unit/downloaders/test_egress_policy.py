"""The egress policy as a table (faults 54 and 55): misses 0, legitimate refused 0."""

from __future__ import annotations

import pytest

from skep.downloaders.egress_policy import EgressPolicy
from skep.errors import ConfigurationError
from skep.model.hosts.named_places import is_place, place_in

REFUSED = """
0.0.0.0 0.1.2.3 10.0.0.1 10.255.255.255 100.64.0.1 100.100.100.200 100.127.255.255
127.0.0.1 127.255.255.254 168.63.129.16 169.254.0.1 169.254.169.254 169.254.170.2
172.16.0.1 172.31.255.255 192.0.0.1 192.0.0.192 192.0.2.1 192.88.99.1 192.168.1.1
198.18.0.1 198.19.255.255 198.51.100.7 203.0.113.9 224.0.0.1 239.255.255.250 240.0.0.1
255.255.255.255
:: ::1 ::127.0.0.1 ::10.0.0.1 ::ffff:127.0.0.1 ::ffff:10.1.2.3 ::ffff:169.254.169.254
::ffff:0:127.0.0.1 64:ff9b::1 64:ff9b::7f00:1 64:ff9b::8.8.8.8 64:ff9b:1::1 100::1
2001::1 2001:0:4136:e378:8000:63bf:3fff:fdd2 2001:2::1 2001:10::1 2001:db8::1 2002::1
2002:7f00:1::1 2002:808:808::1 3fff::1 4000::1 5f00::1 fc00::1 fd00:ec2::254 fe80::1
fe80::1%eth0 fec0::1 ff02::1 ff0e::1 localhost 127.1 0x7f.1 2130706433
"""

PUBLIC = """
1.1.1.1 8.8.8.8 9.9.9.9 11.0.0.1 93.184.216.34 100.63.255.255 100.128.0.1 126.255.255.255
128.0.0.1 168.63.129.17 169.253.255.255 172.15.255.255 172.32.0.1 192.0.1.1 192.167.255.255
192.169.0.1 198.17.255.255 198.20.0.1 223.255.255.254 ::ffff:8.8.8.8 ::8.8.8.8
2001:4860:4860::8888 2001:200::1 2003::1 2606:4700:4700::1111 2a00:1450:4001:81b::200e
"""


@pytest.mark.parametrize("address", REFUSED.split())
def test_what_is_not_public_is_refused(address: str) -> None:
    reason = EgressPolicy().check(address)
    assert reason is not None
    assert address in reason
    assert "not allowed" in reason


@pytest.mark.parametrize("address", PUBLIC.split())
def test_public_unicast_is_allowed(address: str) -> None:
    assert EgressPolicy().check(address) is None


@pytest.mark.parametrize(
    ("allow", "address"),
    [
        ("127.0.0.0/8", "127.0.0.1"),
        ("127.0.0.1", "127.0.0.1"),
        ("10.0.0.0/8", "::ffff:10.1.2.3"),
        ("::1/128", "::1"),
        ("fe80::/10", "fe80::1%eth0"),
        ("64:ff9b::/96", "64:ff9b::8.8.8.8"),
    ],
)
def test_allow_opens_exactly_what_it_names(allow: str, address: str) -> None:
    policy = EgressPolicy(allow=(allow,))
    assert policy.check(address) is None
    assert policy.check("192.168.7.7") is not None


def test_deny_beats_allow_and_public() -> None:
    policy = EgressPolicy(allow=("10.0.0.0/8",), deny=("10.0.0.0/24", "8.8.8.0/24"))
    assert policy.check("10.0.1.1") is None
    assert policy.check("10.0.0.1") == "address 10.0.0.1 is not allowed: egress.deny names it"
    assert policy.check("8.8.8.8") is not None
    assert policy.check("::ffff:8.8.8.8") is not None


def test_the_reason_says_what_to_do() -> None:
    assert EgressPolicy().check("127.0.0.1") == (
        "address 127.0.0.1 is not allowed (loopback); add it to egress.allow"
    )


def test_a_network_that_is_none_stops_the_start() -> None:
    with pytest.raises(ConfigurationError, match=r"egress\.allow"):
        EgressPolicy(allow=("not-a-network",))


NAMED = ["localhost:8000", "127.0.0.1:80", "[::1]:80", "10.1.2.3:443", "evil.example:80", "nas:80"]


@pytest.mark.parametrize(
    ("address", "port", "place", "allowed"),
    [
        ("127.0.0.1", 8000, "localhost:8000", True),
        ("127.0.0.1", 8001, "localhost:8001", False),
        ("::1", 80, "[::1]:80", True),
        ("10.1.2.3", 443, "10.1.2.3:443", True),
        ("10.1.2.4", 443, "10.1.2.4:443", False),
        ("192.168.0.7", 80, "nas:80", True),
        # A public name leads wherever its owner likes, also when a person submitted it.
        ("127.0.0.1", 80, "evil.example:80", False),
        # A name that was named does not make an address of another kind allowed.
        ("169.254.169.254", 80, "nas:80", False),
        ("127.0.0.1", 80, "", False),
        ("93.184.216.34", 80, "evil.example:80", True),
    ],
)
def test_a_person_names_host_and_port(address: str, port: int, place: str, allowed: bool) -> None:
    """H1: by link, redirect or DNS no loopback or private address is reached."""
    policy = EgressPolicy(named=True).naming(NAMED)
    assert (policy.check(address, port, place) is None) is allowed
    # Without the setting nothing changes.
    strict = EgressPolicy().naming(NAMED)
    assert (strict.check(address, port, place) is None) is (place == "evil.example:80" and allowed)


def test_the_port_of_a_center_is_closed_on_every_address_of_this_machine() -> None:
    """H1: named, allowed or not."""
    policy = EgressPolicy(allow=("127.0.0.0/8", "::1/128", "192.0.2.0/24"), centers=[8080])
    for address in ("127.0.0.1", "127.9.9.9", "::1", "::ffff:127.0.0.1"):
        assert "belongs to the center" in (policy.check(address, 8080) or "")
        assert policy.check(address, 8081) is None
    assert policy.check("192.0.2.1", 8080) is None


@pytest.mark.parametrize(
    ("uri", "place"),
    [
        ("http://127.0.0.1/x", "127.0.0.1:80"),
        ("https://LOCALHOST:8443?x", "localhost:8443"),
        ("http://user:pass@[::1]:8080/", "[::1]:8080"),
        ("http://nas.lan", "nas.lan:80"),
        ("http://0x7f000001:1/", "0x7f000001:1"),
        ("http://example.org/http://127.0.0.1/", ""),
        ("http://169.254.169.254/", ""),
        ("http://evil.example@example.org/", ""),
        ("ftp://127.0.0.1/", ""),
        ("http://", ""),
    ],
)
def test_places_that_uris_name(uri: str, place: str) -> None:
    """H1: an inner host, spelled out."""
    assert place_in(uri) == place
    assert place == "" or is_place(place)
