"""`skep doctor`: the network of this machine: a default route, and name resolution.

Run by the command line. It sends one DNS query and nothing else. A machine without a network is
reported as a warning, because agents may crawl an intranet only.
"""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from skep.embed.checks.finding import Finding

#: Reserved for documentation; connecting a UDP socket sends nothing, but needs a route.
ROUTES = ((socket.AF_INET, "192.0.2.1"), (socket.AF_INET6, "2001:db8::1"))
#: A name that always exists, reserved for documentation.
NAME = "example.com"
SECONDS = 5.0
ROUTE_FIX = "connect this machine to a network; downloads from other machines fail until then"
DNS_FIX = "check the name servers in /etc/resolv.conf; every host name fails until they answer"


def network(look_up: Callable[[str], str] | None = None) -> list[Finding]:
    """Checks the default route, and the DNS servers."""
    return [route(), dns(look_up or resolve)]


def route() -> Finding:
    families = [family for family, address in ROUTES if _has_route(family, address)]
    names = {socket.AF_INET: "IPv4", socket.AF_INET6: "IPv6"}
    if not families:
        return Finding("route", False, "no default route", ROUTE_FIX, warning=True)
    return Finding("route", True, " and ".join(names[family] for family in families))


def _has_route(family: socket.AddressFamily, address: str) -> bool:
    with contextlib.suppress(OSError), socket.socket(family, socket.SOCK_DGRAM) as probe:
        probe.connect((address, 9))
        return True
    return False


def dns(look_up: Callable[[str], str]) -> Finding:
    problem = look_up(NAME)
    if problem:
        detail = f"{NAME} cannot be resolved: {problem}"
        return Finding("DNS", False, detail, DNS_FIX, warning=True)
    return Finding("DNS", True, f"{NAME} resolves")


def resolve(name: str) -> str:
    """Why a name cannot be resolved; "" when it can. Bounded: resolvers can wait for a minute."""
    pool = ThreadPoolExecutor(1)
    try:
        pool.submit(socket.getaddrinfo, name, 80).result(SECONDS)
    except TimeoutError:
        return f"no answer in {SECONDS:.0f} s"
    except OSError as error:
        return error.strerror or str(error)
    finally:
        pool.shutdown(wait=False)
    return ""
