"""Options that the commands for spiders share, and the spider that they create.

The only module of the command line that imports user code, when a command runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from skep.cli.terminal.settings_options import split_pair

if TYPE_CHECKING:
    from skep.spiders.authoring.spider import Spider

arguments_option = click.option(
    "-a",
    "arguments",
    multiple=True,
    metavar="NAME=VALUE",
    help="An argument of the spider, available as `self.NAME`; repeatable.",
)
spider_option = click.option(
    "--spider",
    "spider_name",
    required=True,
    metavar="SPIDER",
    help="The spider: file.py, file.py:Class or package.module:Class.",
)


def make_spider(
    name: str, arguments: Sequence[str] = (), settings: dict[str, Any] | None = None
) -> Spider:
    """Create the named spider; raises ConfigurationError with what to type instead."""
    from skep.spiders.load import load_spider

    kind = load_spider(name)
    if settings:
        chosen = {**kind.settings, **settings}
        kind = type(kind.__name__, (kind,), {"settings": chosen, "__module__": kind.__module__})
    return kind(**dict(split_pair(text, "-a") for text in arguments))


def setting_pairs(chosen: Sequence[str]) -> dict[str, Any]:
    """Parse `-s NAME=VALUE`: valid JSON (numbers, true, lists) is decoded, other text is kept."""
    import msgspec

    found: dict[str, Any] = {}
    for text in chosen:
        name, value = split_pair(text, "-s")
        try:
            found[name] = msgspec.json.decode(value)
        except msgspec.DecodeError:
            found[name] = value
    return found
