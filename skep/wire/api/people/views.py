"""Saved views: types and routes."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from skep.model.message_bounds import FilterText, exact
from skep.model.view import View
from skep.wire.api.caller import Resource
from skep.wire.api.route import Route
from skep.wire.filter.tables import TABLES


class NewView(msgspec.Struct, forbid_unknown_fields=True):
    """The filter of a list, to be kept under a name."""

    #: The list: `runs`, `jobs`, `requests`, `agents` and so on.
    resource: Annotated[str, Meta(max_length=16, extra_json_schema=exact(enum=sorted(TABLES)))]
    #: The filter, as text.
    filter: FilterText
    #: Everyone sees it; otherwise only its owner does.
    shared: bool = False


class Views(msgspec.Struct):
    """Those of the caller first, then what others share."""

    items: list[View]


LIST_VIEWS = Route("list_views", "GET", "/api/v1/views", Views)
SAVE_VIEW = Route(
    "save_view",
    "PUT",
    "/api/v1/views/{view}",
    View,
    takes=NewView,
    example={"resource": "runs", "filter": "berlin", "shared": False},
)
DELETE_VIEW = Route("delete_view", "DELETE", "/api/v1/views/{view}", View)


class ViewsClient(Resource):
    """Calls the routes of this file."""

    async def list(self) -> Views:
        """List saved views."""
        return await self._caller.call(LIST_VIEWS)

    async def save(self, view: str, body: NewView) -> View:
        """Save a view."""
        return await self._caller.call(SAVE_VIEW, view, body=body)

    async def remove(self, view: str) -> View:
        """Delete a view."""
        return await self._caller.call(DELETE_VIEW, view)
