"""Skep: one program that lets a team collect data with its own machines.

One of the `spiders` or `mirrors`, a generator or a person asks for work; `jobs` check it, cut
it into requests and decide when it is due; `lanes` pack the requests into blocks and order them
under limits; `placement` chooses an agent from the `fleet`; `wire` carries the block to it and
its `downloaders` fetch it; `results` put the bytes into the `archive` and the facts into the
`store`; `streams` carry out what was found; `pipelines` turn messages into outputs, and
messages that failed or must wait stay in the `pool`; `logs` keep what each part reports; and
`why` explains what anything waits for.

Each name in that sentence is a folder of this package. `docs/why/architecture.md` lists the
folders from top to bottom; a folder imports only folders below it.

The names that spiders import are here too; each is loaded on first use.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from skep.spiders.authoring.item import Item
    from skep.spiders.authoring.links import Links, Rule
    from skep.spiders.authoring.request import Request
    from skep.spiders.authoring.response import Failure, Response
    from skep.spiders.authoring.spider import Spider

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
    """Load a public name on first use, so that `skep --help` loads no parsers."""
    if name not in _HOMES:
        raise AttributeError(f"module 'skep' has no attribute {name!r}")
    found = getattr(import_module(f"skep.spiders.authoring.{_HOMES[name]}"), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
