"""Resolves the host of a repository once, checks every address, and makes git connect to those.

git never resolves the name again, so a name that changes its address between the check and the
connection leads nowhere else. TLS certificates and SSH host keys are still checked for the name.
"""

from __future__ import annotations

import asyncio
import socket
from urllib.parse import urlsplit

import msgspec

from skep.downloaders.egress_policy import EgressPolicy
from skep.downloaders.git.remote import GitRemote
from skep.errors import InvalidInput
from skep.model.hosts.named_places import place_of

SSH_PORT = 22


class Pinned(msgspec.Struct, frozen=True):
    """How git connects to a repository: the URL, options before the command, variables, and
    options of ssh."""

    url: str
    protocol: str
    options: tuple[str, ...] = ()
    environment: dict[str, str] = msgspec.field(default_factory=dict)
    ssh_options: tuple[str, ...] = ()


async def pin(remote: GitRemote, egress: EgressPolicy) -> Pinned:
    """Raises InvalidInput unless the host can be resolved and all its addresses are allowed."""
    return pinned_to(remote, await _addresses(remote.host, remote.port, egress))


async def _addresses(host: str, port: int, egress: EgressPolicy) -> list[str]:
    """Addresses of the host, [] without a host."""
    if not host:
        return []
    loop = asyncio.get_running_loop()
    try:
        found = await loop.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise InvalidInput(f"cannot resolve the host {host} of the repository: {error}") from error
    addresses = list(dict.fromkeys(str(place[0]) for *_, place in found))
    policy, place = egress.naming_host(host, port), place_of(host, port)
    for address in addresses:
        if why := policy.check(address, port, place):
            raise InvalidInput(f"cannot fetch the repository from {host}: {why}")
    return addresses


def pinned_to(remote: GitRemote, addresses: list[str]) -> Pinned:
    """The connection to these addresses, under the name of the host."""
    host, port, protocol = remote.host, remote.port, remote.protocol
    if not addresses:
        return Pinned(remote.url, protocol)
    if protocol == "https":
        places = ",".join(map(_bracketed, addresses))
        words = ("-c", f"http.curloptResolve={host}:{port}:{places}")
        return Pinned(remote.url, protocol, words)
    if protocol == "ssh":
        known = host if port == SSH_PORT else f"[{host}]:{port}"
        ssh = (f"-oHostName={addresses[0]}", f"-oHostKeyAlias={known}")
        return Pinned(remote.url, protocol, ssh_options=ssh)
    path = urlsplit(remote.url).path
    url = f"git://{_bracketed(addresses[0])}:{port}{path}"
    virtual = {"GIT_OVERRIDE_VIRTUAL_HOST": f"{_bracketed(host)}:{port}"}
    return Pinned(url, protocol, environment=virtual)


def _bracketed(address: str) -> str:
    return f"[{address}]" if ":" in address else address
