"""What all lists of the portal do: read a page of the API with a filter, and find saved views.

A filter that the API refuses is not an error of the page: the list is empty and says why, and the
typed text stays in the field.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import TypeVar

from skep.errors import InvalidInput
from skep.model.view import View as SavedView
from skep.portal.page import PageCall
from skep.portal.panels import given, part
from skep.portal.show.tables import Filter
from skep.wire.api.people.views import Views

T = TypeVar("T")


async def read_list(
    wanted: Filter, ask: Callable[[Filter], Awaitable[T]], nothing: T
) -> tuple[T, Filter]:
    """The answer and the filter; for a refused filter `nothing`, and the filter with its
    problem."""
    try:
        return await ask(wanted), wanted
    except InvalidInput as error:  # also InvalidFilter
        return nothing, replace(wanted, page="", problem=error.detail)


async def views_for(call: PageCall, resource: str) -> list[SavedView]:
    """The saved views of a list; none for a caller who may not read them."""
    found = given(await part(call.api.views.list()), Views([]))
    return [view for view in found.items if view.resource == resource]
