"""Keys of pages deep in a list, for `lists`: read from the store, as the center would find them.

Walking to the thousandth page of every filter over HTTP takes longer than all measurements. The
key of the first page names the list and the question; only the row in it is replaced.
"""

from __future__ import annotations

import time
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Iterable
from typing import Any

import msgspec

from skep.settings import StoreSettings
from skep.store.open_store import open_store
from skep.wire.filter.check import read_filter
from skep.wire.filter.tables import TABLES

#: Rows that one query collects; a search without an index has other bounds.
STEP = 10_000
#: A row that was looked at counts as this part of a row that was found.
SCANNED = 20


async def deep_rows(
    url: str, asked: Iterable[tuple[str, str]], rows: int
) -> dict[tuple[str, str], tuple[Any, ...]]:
    """(resource, filter) -> key of the row after about `rows` rows; short lists are missing."""
    store: Any = open_store(url, StoreSettings())
    await store.open()
    found = {}
    for resource, text in asked:
        wanted = read_filter(text, TABLES[resource], time.time())
        key, passed = None, 0
        while passed < rows:
            page = await store.lists.keys(wanted, key, min(STEP, rows - passed))
            if page.next is None:
                break
            key, passed = page.next, passed + max(len(page.keys), page.scanned // SCANNED, 1)
        if key is not None:
            found[resource, text] = key
    await store.close()
    return found


def moved(page: str, row: tuple[Any, ...]) -> str:
    """The key of a page, for another row of the same list."""
    listed, question, *_ = msgspec.msgpack.decode(urlsafe_b64decode(page + "=" * (-len(page) % 4)))
    return urlsafe_b64encode(msgspec.msgpack.encode([listed, question, *row])).decode().rstrip("=")
