"""Checks whether an image's registry may be contacted. Run by agents, before a pull.

A job names the image and with it a host, so the agent's egress rules apply. The engine resolves
the name again: a later change of its address is not detected here.
"""

from __future__ import annotations

import asyncio
import socket

from skep.agent.apps.runner_contract import CannotRun
from skep.downloaders.egress_policy import EgressPolicy
from skep.model.hosts.named_places import place_of

PORT = 443


def registry_of(image: str) -> tuple[str, int] | None:
    """Host and port in the name; None where the settings of the engine choose them."""
    first, slash, _ = image.partition("/")
    if not slash or not ("." in first or ":" in first or first.lower() == "localhost"):
        return None
    host, colon, port = first.rpartition(":")
    if first.startswith("[") and first.endswith("]"):
        host, colon = "", ""
    number = int(port) if colon and port.isascii() and port.isdigit() else PORT
    return (host if colon else first).strip("[]"), number


async def check_registry(image: str, egress: EgressPolicy) -> None:
    """Raises CannotRun with the reason."""
    named = registry_of(image)
    if named is None:
        return
    host, port = named
    try:
        found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError, OverflowError) as error:
        raise CannotRun(f"cannot pull image {image[:200]!r}: cannot resolve {host}") from error
    egress, place = egress.naming_host(host, port), place_of(host, port)
    for *_, address in found:
        if why := egress.check(str(address[0]), port, place):
            raise CannotRun(f"cannot pull image {image[:200]!r}: {why}")
