"""Failure groups with their state: types and routes."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from skep.model.message_bounds import FilterText, exact
from skep.model.monitoring.failure_groups import GroupHistory, KeptGroup
from skep.wire.api.caller import Resource
from skep.wire.api.listing import Listed, PageKey
from skep.wire.api.route import Route


class WhichGroups(msgspec.Struct, forbid_unknown_fields=True):
    """Filters are combined with AND."""

    #: State of the group; empty = any.
    state: Literal["", "open", "resolved", "ignored"] = ""
    #: Host of the requests.
    host: Annotated[str, Meta(max_length=255)] = ""
    #: Failure class: network, timeout, status, ...
    failure: Annotated[str, Meta(max_length=16)] = ""
    #: Maximum number of groups.
    limit: Annotated[int, Meta(ge=1, le=1000)] = 50
    #: `next` of the last page; empty = from the start.
    after: Annotated[str, Meta(max_length=400, extra_json_schema=exact(format="skep-cursor"))] = ""
    #: A filter, see the page on filters. With it, even an empty one, pages follow `page`.
    filter: FilterText | None = None
    #: `next_page` of the last answer; empty = the first page.
    page: PageKey = ""


class GroupPage(Listed):
    """Groups, last seen first; continue with `after=next` until `next` is empty, or with `page`
    when there is a filter."""

    items: list[KeptGroup]
    next: str = ""


class GroupDetails(msgspec.Struct):
    """A group with its deaths by hour and by day."""

    group: KeptGroup
    history: GroupHistory


class GroupChange(msgspec.Struct, forbid_unknown_fields=True):
    """A new state of a group."""

    #: A note for people; default: the note stays.
    note: Annotated[str, Meta(max_length=500)] | None = None


_ONE = "/api/v1/failure-groups/{group}"
LIST_FAILURE_GROUPS = Route(
    "list_failure_groups", "GET", "/api/v1/failure-groups", GroupPage, asks=WhichGroups
)
GET_KEPT_FAILURE_GROUP = Route("get_kept_failure_group", "GET", _ONE, GroupDetails)
RESOLVE_FAILURE_GROUP = Route(
    "resolve_failure_group",
    "POST",
    f"{_ONE}/resolve",
    KeptGroup,
    takes=GroupChange,
    example={"note": "the proxy was replaced"},
)
IGNORE_FAILURE_GROUP = Route(
    "ignore_failure_group",
    "POST",
    f"{_ONE}/ignore",
    KeptGroup,
    takes=GroupChange,
    example={"note": "the host is gone"},
)
REOPEN_FAILURE_GROUP = Route(
    "reopen_failure_group", "POST", f"{_ONE}/reopen", KeptGroup, takes=GroupChange, example={}
)


class FailureGroupsClient(Resource):
    """Calls the routes of this file."""

    async def list(self, asks: WhichGroups | None = None) -> GroupPage:
        """Failure groups."""
        return await self._caller.call(LIST_FAILURE_GROUPS, asks=asks)

    async def show(self, group: str) -> GroupDetails:
        """One group and its history."""
        return await self._caller.call(GET_KEPT_FAILURE_GROUP, group)

    async def resolve(self, group: str, body: GroupChange) -> KeptGroup:
        """The cause is fixed; if it returns, the group is reopened and raises an alert."""
        return await self._caller.call(RESOLVE_FAILURE_GROUP, group, body=body)

    async def ignore(self, group: str, body: GroupChange) -> KeptGroup:
        """The failure does not matter."""
        return await self._caller.call(IGNORE_FAILURE_GROUP, group, body=body)

    async def reopen(self, group: str, body: GroupChange) -> KeptGroup:
        """The group is open again."""
        return await self._caller.call(REOPEN_FAILURE_GROUP, group, body=body)
