"""Whole processes: a center, an agent, or both, which communicate over HTTP as on two machines.

Used by `skep up`, by the demo and by tests. It implements nothing twice: only the number of
machines differs. Its public names are loaded at their first use, so that commands which only search
for a center start fast.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from skep.embed.embedded import LocalAgent, LocalCenter, with_local_code, with_loopback

__all__ = ["LocalAgent", "LocalCenter", "with_local_code", "with_loopback"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'skep.embed' has no attribute {name!r}")
    found = getattr(import_module("skep.embed.embedded"), name)
    globals()[name] = found
    return found
