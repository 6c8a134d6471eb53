"""Skep: one program that lets a team collect data with machines of its own.

One of the `spiders`, a generator, a mirror or a person asks for work; `jobs` checks it and
cuts it into requests, `lanes` pack the requests into blocks and put them in order under
limits, `placement` chooses who, `wire` carries a block to an agent, its `downloaders` fetch
it, `archive` keeps the bytes and `store` the facts, and `streams` carry out what was found.

Each noun in that sentence is a folder of this package, and a folder imports only the
folders further down the sentence. `docs/why/architecture.md` draws it.

What spiders are written with is here too, and is loaded when it is first asked for.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from skep.spiders.item import Item
    from skep.spiders.links import Links, Rule
    from skep.spiders.request import Request
    from skep.spiders.response import Failure, Response
    from skep.spiders.spider import Spider

__version__ = "0.1.0"

__all__ = ["Failure", "Item", "Links", "Request", "Response", "Rule", "Spider"]

_HOMES = {
    "Failure": "response",
    "Item": "item",
    "Links": "links",
    "Request": "request",
    "Response": "response",
    "Rule": "links",
    "Spider": "spider",
}


def __getattr__(name: str) -> Any:
    """Load a public name when it is used: `skep --help` must not pay for parsers."""
    if name not in _HOMES:
        raise AttributeError(f"module 'skep' has no attribute {name!r}")
    found = getattr(import_module(f"skep.spiders.{_HOMES[name]}"), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
