"""Calls of a command to its center, through the typed client (`CenterApi`).

`ask` makes one call; `connected` opens a session for several calls. With `--json`, the answers
are kept as the center sent them, so that fields of a newer center are printed too.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

from skep.cli.terminal.options import KEEP_ANSWERS

if TYPE_CHECKING:
    from skep.embed.center_address import CenterAddress
    from skep.wire.client import CenterClient
    from skep.wire.client.answers_as_sent import AnswersAsSent
    from skep.wire.client.api import CenterApi

T = TypeVar("T")
_KEPT = "skep.cli.answers"


def ask(reach: CenterAddress, call: Callable[[CenterApi], Awaitable[T]]) -> T:
    """Make one call, from a command that does nothing else at the same time."""

    async def asked() -> T:
        async with connected(reach) as client:
            return await call(client.api)

    return asyncio.run(asked())


def connected(reach: CenterAddress) -> CenterClient:
    """Open a session with the center of this command; use it with `async with`."""
    kept = _answers()
    return reach.client(None if kept is None else kept.keep)


def keep_answers() -> None:
    """Keep answers as the center sent them, for a command that does not print JSON."""
    click.get_current_context().meta[KEEP_ANSWERS] = True


def as_sent(value: Any) -> Any:
    """Return the value with answers, and parts of answers, as the center sent them."""
    from skep.wire.client.answers_as_sent import AnswersAsSent

    return (_answers() or AnswersAsSent()).of(value)


def _answers() -> AnswersAsSent | None:
    """The answers of the current command; None if it does not keep answers."""
    context = click.get_current_context(silent=True)
    if context is None or not context.meta.get(KEEP_ANSWERS):
        return None
    from skep.wire.client.answers_as_sent import AnswersAsSent

    kept: AnswersAsSent = context.meta.setdefault(_KEPT, AnswersAsSent())
    return kept
