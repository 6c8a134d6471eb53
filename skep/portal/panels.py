"""Calls of one page at the same time. A part that is refused or fails is shown as such.

A page with one forbidden or failed part still shows the others. A session that ended, and a
missing main object, are errors of the whole page: call those directly.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from dataclasses import dataclass
from typing import Any, TypeVar

from skep.errors import SkepError, Unauthorized

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Refused:
    """A part of a page that the API did not give."""

    error: SkepError

    @property
    def forbidden(self) -> bool:
        return self.error.status == 403  # noqa: PLR2004


async def part(call: Awaitable[T]) -> T | Refused:
    """The answer, or why there is none. Raises Unauthorized."""
    try:
        return await call
    except Unauthorized:
        raise
    except SkepError as error:
        return Refused(error)


async def parts(**calls: Awaitable[Any]) -> dict[str, Any]:
    """All answers by name, called at the same time."""
    found = await asyncio.gather(*(part(call) for call in calls.values()))
    return dict(zip(calls, found, strict=True))


def given(value: Any, default: T) -> T:
    """The answer, or the default for a part that was refused."""
    found: T = default if isinstance(value, Refused) else value
    return found
