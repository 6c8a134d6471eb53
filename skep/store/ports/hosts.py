"""The store's contract for hosts. The rules of `store/ports` apply.

Run by centers only. It guarantees that a rate-limited host is in one open block at a time.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import msgspec

from skep.model.hosts.host import SiteRule
from skep.model.hosts.politeness import HostPoliteness, Politeness


class Hosts(Protocol):
    """Hosts, their limits, and the blocks that hold them. Used by `lanes` and by the API.

    A block holds a host from `Requests.pack` (or `Blocks.lease`) on, until the block ends in
    any way or a report says that it needs the host no longer.
    """

    async def all(self, limit: int, after: str = "") -> list[HostRow]:
        """Sorted by name, those after a name."""

    async def get(self, host: str) -> HostRow:
        """Raises NotFound."""

    async def set_rule(self, host: str, rule: SiteRule, now: float) -> None:
        """Set an operator's rule; it applies to blocks that are packed from now on."""

    async def clear(self, host: str, now: float) -> None:
        """Delete the rule and the learnt values; counts stay. Raises NotFound."""

    async def held(self, block_ids: Sequence[int]) -> list[HeldHost]:
        """The hosts that these blocks hold, sorted by name."""

    async def wake(self, now: float, politeness: Politeness, limit: int) -> int:
        """Parked requests of free hosts become WAITING, about one window of each host, and none
        while the host is paused; returns how many."""

    async def unpack(self, now: float, limit: int) -> int:
        """Claimable blocks of runs that are not running release their hosts: the blocks are FAILED,
        their requests DELAYED and due at once. Returns how many blocks."""


class HeldHost(msgspec.Struct, frozen=True):
    """A host, and the open block that holds it."""

    block: int
    site: HostPoliteness
    #: The block's run has given up on robots.txt: how its last attempt failed.
    failure: str = ""
    detail: str = ""


class HostRow(msgspec.Struct, frozen=True):
    """A host with its counts, and its current holder."""

    site: HostPoliteness
    requests: int
    failed: int
    refused: int
    barred: int
    deferred: int
    received: int
    elapsed_us: int
    last_at: float
    agent: str = ""
    run: str = ""
    block: int | None = None
