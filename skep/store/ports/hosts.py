"""What centers ask of a store about hosts; a part of `store/ports`, under its rules.

Run by centers only. A host with a pace is in one open block at a time: that is promised here.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import msgspec

from skep.model.hosts.host import SiteRule
from skep.model.hosts.politeness import HostPoliteness, Politeness


class Hosts(Protocol):
    """Asked by `lanes`, and by people: hosts, how they are treated, and who has them.

    A host is in the hands of a block from `Requests.pack` (or `Blocks.lease`) on, until the
    block ends in any way or a report says that it is through with the host.
    """

    async def all(self, limit: int, after: str = "") -> list[HostRow]:
        """By name, those after a name."""

    async def get(self, host: str) -> HostRow:
        """Raises NotFound."""

    async def set_rule(self, host: str, rule: SiteRule, now: float) -> None:
        """An operator's word; it holds for blocks that are packed from now on."""

    async def clear(self, host: str, now: float) -> None:
        """Forget the rule and what was learnt; counts stay. Raises NotFound."""

    async def held(self, block_ids: Sequence[int]) -> list[HeldHost]:
        """The hosts that these blocks have, by name."""

    async def wake(self, now: float, politeness: Politeness, limit: int) -> int:
        """Parked requests of hosts that are free become WAITING, about one window of each
        host, and none while it cools; returns how many."""

    async def unpack(self, now: float, limit: int) -> int:
        """Claimable blocks of runs that rest give their hosts back: the blocks are FAILED,
        their requests DELAYED and due at once. Returns how many blocks."""


class HeldHost(msgspec.Struct, frozen=True):
    """A host, and the open block that has it."""

    block: int
    site: HostPoliteness
    #: Tries for robots.txt by the block's run were enough: how the last of them failed.
    failure: str = ""
    detail: str = ""


class HostRow(msgspec.Struct, frozen=True):
    """A host with its counts, and in whose hands it is."""

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
