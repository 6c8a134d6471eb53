"""Clients of a center: `CenterClient` for agents, `api.CenterApi` for everything else.

`CenterApi` has a method for every route of the public API and works over any transport. The
names here are loaded on first use: a process that calls itself needs no HTTP.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from skep.wire.api.route import CALL_SECONDS

if TYPE_CHECKING:
    from skep.wire.client.center import CenterClient

__all__ = ["CALL_SECONDS", "CenterClient"]


def __getattr__(name: str) -> Any:
    if name != "CenterClient":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from skep.wire.client.center import CenterClient

    return CenterClient
