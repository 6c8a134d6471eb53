"""A row of a list as live updates show it. Pure data, used by centers and clients."""

from __future__ import annotations

from typing import Any

import msgspec


class LiveRow(msgspec.Struct, frozen=True):
    """One object of a list; `key` is unique in it."""

    key: str
    data: dict[str, Any]
