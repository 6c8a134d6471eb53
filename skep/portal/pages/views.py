"""Saved views of lists: keep a filter under a name, for oneself or for everyone."""

from __future__ import annotations

from skep.portal.page import Done, Outcome, Page, PageCall
from skep.portal.safe_paths import safe_path
from skep.wire.api.people.views import NewView


async def save(call: PageCall) -> Outcome:
    """The API checks name, filter and owner."""
    name = call.field("name").strip()
    body = NewView(call.field("resource"), call.field("filter"), bool(call.field("shared")))
    await call.api.views.save(name, body)
    return Done(call.texts.plain("parts.view_saved", name=name), safe_path(call.field("next")))


PAGES = (Page("views", "/views", save, method="POST"),)
