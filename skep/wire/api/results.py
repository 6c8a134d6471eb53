"""Items and pages of a run: types and routes. Reading changes nothing and can be repeated."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from skep.wire.api.caller import Download, Resource
from skep.wire.api.driver import READ_BLOCKS_MAX, PageBlock
from skep.wire.api.route import Route


class ItemPage(msgspec.Struct):
    """Items after an id, at most `limit` of them."""

    #: Id of the last item that was read; 0 = from the start.
    after: Annotated[int, Meta(ge=0, le=2**63 - 1)] = 0
    #: Maximum number of items.
    limit: Annotated[int, Meta(ge=1, le=10_000)] = 1000


class WhichExport(msgspec.Struct, forbid_unknown_fields=True):
    """The form of a file with all items of a run."""

    #: One JSON object per line, or comma-separated values that are safe in a spreadsheet.
    format: Literal["jsonl", "csv"] = "jsonl"
    #: Columns of a CSV file, separated by commas; empty = all fields of all items.
    fields: Annotated[str, Meta(max_length=4000)] = ""


class BlockPage(msgspec.Struct):
    """Blocks after an id, at most `limit` of them."""

    #: Id of the last block that was read; 0 = from the start.
    after: Annotated[int, Meta(ge=0, le=2**63 - 1)] = 0
    #: Maximum number of blocks.
    limit: Annotated[int, Meta(ge=1, le=READ_BLOCKS_MAX)] = 8
    #: Include blocks that no driver has read yet.
    unread: bool = False
    #: Include the items of the pages.
    items: bool = False


class Item(msgspec.Struct):
    """One item of a run."""

    id: int
    request: int
    data: dict[str, Any]


class Pages(msgspec.Struct):
    """Sorted by block; continue with `after=next` until there are none."""

    blocks: list[PageBlock]
    next: int
    #: With `items`: the items of these pages, in the order in which they were stored.
    items: list[Item]


class Items(msgspec.Struct):
    """In the order in which the run found them; continue with `after=next`."""

    items: list[Item]
    next: int


LIST_ITEMS = Route(
    "list_items", "GET", "/api/v1/runs/{run}/items", Items, asks=ItemPage, packed=True, seconds=60.0
)
EXPORT_ITEMS: Route[bytes] = Route(
    "export_items",
    "GET",
    "/api/v1/runs/{run}/items/export",
    asks=WhichExport,
    media="application/x-ndjson",
    other_media=("text/csv",),
    seconds=60.0,
    answer_example='{"title":"Example"}\n',
)
LIST_PAGES = Route(
    "list_pages",
    "GET",
    "/api/v1/runs/{run}/pages",
    Pages,
    asks=BlockPage,
    packed=True,
    seconds=120.0,
)


class ResultsClient(Resource):
    """Calls the routes of this file."""

    async def items(self, run: str, asks: ItemPage | None = None) -> Items:
        """Items of a run."""
        return await self._caller.call(LIST_ITEMS, run, asks=asks)

    def export(
        self, run: str, asks: WhichExport | None = None
    ) -> AbstractAsyncContextManager[Download]:
        """All items of a run as a file."""
        return self._caller.stream(EXPORT_ITEMS, run, asks=asks)

    async def pages(self, run: str, asks: BlockPage | None = None) -> Pages:
        """Pages of a run with their archived bytes."""
        return await self._caller.call(LIST_PAGES, run, asks=asks)
