"""What every list has in common: the text of a filter, and the key of a page.

Used by both sides. A key is opaque to callers: it names the list, the question and the row that
the page ended with, so that a key of another list or another filter is refused.
"""

from __future__ import annotations

import binascii
from base64 import urlsafe_b64decode, urlsafe_b64encode
from typing import Annotated, Any
from zlib import crc32

import msgspec
from msgspec import Meta

from skep.errors import InvalidInput
from skep.model.message_bounds import exact

PageKey = Annotated[str, Meta(max_length=2000, extra_json_schema=exact(format="skep-cursor"))]
_WRONG = "the page key is not valid; send `next_page` of the last answer, or start without one"


class Listed(msgspec.Struct, kw_only=True):
    """How a list goes on, and how long it is."""

    #: Send it as `page` for the next page, with the same filter; null = there is no more. While a
    #: search goes on it is there even when this page has no items.
    next_page: str | None = None
    #: How many items there are; null = not counted, which only the first page is.
    count: int | None = None
    #: If false, there are `count` or more.
    exact: bool = True
    #: Rows that were looked at one by one, because no index serves the filter.
    scanned: int = 0


def page_key(resource: str, question: str, key: tuple[Any, ...]) -> str:
    """The key of a page that ended with this row."""
    packed = msgspec.msgpack.encode([resource, crc32(question.encode()), *key])
    return urlsafe_b64encode(packed).decode().rstrip("=")


def row_key(text: str, resource: str, question: str) -> tuple[Any, ...] | None:
    """The row that a page begins after; None for the first page. Raises InvalidInput."""
    if not text:
        return None
    try:
        padded = text.encode("ascii") + b"=" * (-len(text) % 4)
        found = msgspec.msgpack.decode(urlsafe_b64decode(padded), type=list[Any])
        listed, asked, *key = found
    except (binascii.Error, ValueError, UnicodeEncodeError, msgspec.MsgspecError):
        raise InvalidInput(_WRONG) from None
    if listed != resource:
        raise InvalidInput(f"the page key is one of another list ({str(listed)[:20]!r})")
    if asked != crc32(question.encode()):
        raise InvalidInput(
            "the page key is one of another filter; send the same filter with every page, or start"
            " without a key"
        )
    return tuple(key)
