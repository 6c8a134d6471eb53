"""Reads the pages of a run from its center, block by block, with their archived bytes.

Used by `skep replay` and `skep data`. It does not change the run or mark pages as read.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

from skep.wire.api.results import BlockPage

if TYPE_CHECKING:
    from skep.wire.api.driver import PageBlock
    from skep.wire.api.results import Pages
    from skep.wire.client import CenterClient

#: Blocks per call: a few hundred pages.
AT_ONCE = 4


async def archived_blocks(
    client: CenterClient, run: str, *, unread: bool = False
) -> AsyncIterator[PageBlock]:
    """Blocks that the spider of the run has read; with `unread`, all ended blocks."""
    async for found in _read(client, run, unread=unread):
        for block in found.blocks:
            yield block


async def archived_pages(client: CenterClient, run: str) -> AsyncIterator[Pages]:
    """Blocks that the spider of the run has read, with their items, several at a time."""
    async for found in _read(client, run, items=True):
        yield found


async def _read(
    client: CenterClient, run: str, *, unread: bool = False, items: bool = False
) -> AsyncIterator[Pages]:
    after = 0
    while True:
        page = BlockPage(after, AT_ONCE, unread=unread, items=items)
        found = await client.api.results.pages(run, page)
        if not found.blocks:
            return
        yield found
        after = found.next
