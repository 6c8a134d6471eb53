"""Hosts and the rules for them: types and routes."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from skep.model.hosts.host import SiteRule, SiteView
from skep.model.message_bounds import PRINTABLE, FilterText, exact
from skep.wire.api.caller import Resource
from skep.wire.api.listing import Listed, PageKey
from skep.wire.api.route import Route


class Sites(Listed):
    """Sorted by name; continue with `after=next` until `next` is empty."""

    items: list[SiteView]
    next: str = ""


class HostPage(msgspec.Struct):
    """Which part of the list."""

    #: Maximum number of hosts.
    limit: Annotated[int, Meta(ge=1, le=1000)] = 100
    #: Name of the last host that was read; empty = from the start.
    after: Annotated[str, Meta(max_length=255, extra_json_schema=exact(pattern=PRINTABLE))] = ""
    #: A filter, see the page on filters. With it, even an empty one, pages follow `page`.
    filter: FilterText | None = None
    #: `next_page` of the last answer; empty = the first page.
    page: PageKey = ""


LIST_SITES = Route("list_sites", "GET", "/api/v1/sites", Sites, asks=HostPage)
GET_SITE = Route("get_site", "GET", "/api/v1/sites/{host}", SiteView)
SET_SITE = Route(
    "set_site",
    "PUT",
    "/api/v1/sites/{host}",
    SiteView,
    takes=SiteRule,
    example={"rate": 0.5, "concurrency": 2},
)
CLEAR_SITE = Route("clear_site", "DELETE", "/api/v1/sites/{host}", SiteView)


class HostsClient(Resource):
    """Calls the routes of this file."""

    async def list(self, asks: HostPage | None = None) -> Sites:
        """List hosts."""
        return await self._caller.call(LIST_SITES, asks=asks)

    async def show(self, host: str) -> SiteView:
        """One host."""
        return await self._caller.call(GET_SITE, host)

    async def put(self, host: str, rule: SiteRule) -> SiteView:
        """Set the rule of a host."""
        return await self._caller.call(SET_SITE, host, body=rule)

    async def clear(self, host: str) -> SiteView:
        """Clear a host."""
        return await self._caller.call(CLEAR_SITE, host)
