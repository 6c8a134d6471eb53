"""Reads the pages of a run from its center, block after block, with their archived bytes.

Run by `skep replay` and `skep data`. The run does not notice: nothing is marked as read.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any

import msgspec

from skep.cli.terminal.center_options import run_path
from skep.spiders.ports import PageBlock

if TYPE_CHECKING:
    from skep.wire.client import CenterClient

#: Blocks in one call: some hundred pages.
AT_ONCE = 4
CALL_SECONDS = 120.0


class PageItem(msgspec.Struct):
    """An item that was kept for the page of a request."""

    request: int
    data: dict[str, Any]


class ReadPages(msgspec.Struct):
    """One answer of the center: some blocks, and the items of their pages if asked for."""

    blocks: list[PageBlock]
    next: int
    items: list[PageItem] = []


async def archived_blocks(
    client: CenterClient, run: str, *, unread: bool = False
) -> AsyncIterator[PageBlock]:
    """Blocks that the run's spider has read; with `unread` every one that ended."""
    async for found in _read(client, run, f"unread={str(unread).lower()}"):
        for block in found.blocks:
            yield block


async def archived_pages(client: CenterClient, run: str) -> AsyncIterator[ReadPages]:
    """Blocks that the run's spider has read, some at a time, with what it kept of them."""
    async for found in _read(client, run, "items=true"):
        yield found


async def _read(client: CenterClient, run: str, query: str) -> AsyncIterator[ReadPages]:
    after = 0
    accept = {"Accept": "application/msgpack"}
    while True:
        path = f"{run_path(run, 'pages')}?after={after}&limit={AT_ONCE}&{query}"
        found = await client.call(
            "GET", path, None, ReadPages, headers=accept, seconds=CALL_SECONDS
        )
        if not found.blocks:
            return
        yield found
        after = found.next
