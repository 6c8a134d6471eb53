"""Reads the pages of a run from its center, block after block, with their archived bytes."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

import msgspec

from skep.cli.reach import run_path
from skep.spiders.ports import PageBlock

if TYPE_CHECKING:
    from skep.wire.client import CenterClient

#: Blocks in one call: some hundred pages.
AT_ONCE = 4
CALL_SECONDS = 120.0


class _Pages(msgspec.Struct):
    blocks: list[PageBlock]
    next: int


async def archived_blocks(
    client: CenterClient, run: str, *, unread: bool = False
) -> AsyncIterator[PageBlock]:
    """Blocks that the run's spider has read; with `unread` every one that ended."""
    after = 0
    while True:
        query = f"after={after}&limit={AT_ONCE}&unread={str(unread).lower()}"
        path = f"{run_path(run, 'pages')}?{query}"
        accept = {"Accept": "application/msgpack"}
        found = await client.call("GET", path, None, _Pages, headers=accept, seconds=CALL_SECONDS)
        for block in found.blocks:
            yield block
        if not found.blocks:
            return
        after = found.next
