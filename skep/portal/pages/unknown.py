"""The page for paths that do not exist."""

from __future__ import annotations

from skep.errors import NotFound
from skep.portal.page import Outcome, Page, PageCall


async def show(call: PageCall) -> Outcome:
    raise NotFound(call.texts.plain("unknown.detail", path=call.request.url.path[:200]))


UNKNOWN = Page("unknown", "/{path:path}", show, public=True)
