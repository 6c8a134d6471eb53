"""HTTP connections that keep to a `HostRules`. Used by centers, for webhooks that jobs name.

The address is judged that will be connected, whatever the URL says and however it is spelled.
"""

from __future__ import annotations

import asyncio
import socket
from typing import Any

from skep.runtime.lazy_certificates import aiohttp
from skep.streams.host_rules import HostRules


def connector(rules: HostRules) -> aiohttp.TCPConnector:
    """For one session: it connects only to addresses that passed."""
    resolver = _CheckedResolver(rules)
    return aiohttp.TCPConnector(
        resolver=resolver, socket_factory=resolver.socket_for, use_dns_cache=False
    )


class _CheckedResolver(aiohttp.abc.AbstractResolver):
    """Gives aiohttp the addresses that passed; `socket_for` lets it connect to no others."""

    def __init__(self, rules: HostRules) -> None:
        self._rules = rules
        self._passed: set[str] = set()

    async def resolve(
        self,
        host: str,
        port: int = 0,
        family: socket.AddressFamily = socket.AF_UNSPEC,  # noqa: ARG002 - their contract
    ) -> list[aiohttp.abc.ResolveResult]:
        found = await asyncio.to_thread(self._rules.addresses, host, port)
        self._passed.update(found)
        return [_result(host, port, address) for address in found]

    def socket_for(self, info: Any) -> socket.socket:
        """Hosts that are written as an address never come to `resolve`."""
        family, kind, protocol, _, place = info
        if place[0] not in self._passed:
            self._rules.addresses(str(place[0]), int(place[1]))
        return socket.socket(family, kind, protocol)

    async def close(self) -> None:
        self._passed.clear()


def _result(host: str, port: int, address: str) -> aiohttp.abc.ResolveResult:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    return {
        "hostname": host,
        "host": address,
        "port": port,
        "family": family,
        "proto": socket.IPPROTO_TCP,
        "flags": socket.AI_NUMERICHOST,
    }
