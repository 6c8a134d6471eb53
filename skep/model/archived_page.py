"""A page as the archive alone knows it: found by reading a segment, kept when a store is rebuilt.

Pure data; passed from `archive` to `store` by `skep rebuild`.
"""

from __future__ import annotations

import msgspec


class ArchivedPage(msgspec.Struct, frozen=True):
    """A response in a segment, with the records that follow it and belong to it."""

    offset: int
    length: int
    uri: str
    status: int
    address: str
    at: float
    received: int
