"""The audit log: types and routes."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from skep.model.message_bounds import FilterText
from skep.model.people.audit import AuditRow
from skep.wire.api.caller import Resource
from skep.wire.api.listing import Listed, PageKey
from skep.wire.api.route import Route


class WhichAudit(msgspec.Struct):
    """Which rows to list."""

    #: A filter of audit rows, such as `user:anna outcome:refused since:1d`; empty = all.
    filter: FilterText = ""
    #: Maximum number of rows, newest first.
    limit: Annotated[int, Meta(ge=1, le=1000)] = 100
    #: Only rows below this number; `next` of the previous answer. 0 = from the newest.
    after: Annotated[int, Meta(ge=0, le=2**63 - 1)] = 0
    #: `next_page` of the last answer, instead of `after`; empty = the first page.
    page: PageKey = ""


class AuditPage(Listed):
    """Newest first; continue with `page=next_page`, or with `after=next`."""

    items: list[AuditRow]
    #: While it is not null there may be more rows below this number.
    next: int | None = None


LIST_AUDIT = Route("list_audit", "GET", "/api/v1/audit", AuditPage, asks=WhichAudit)


class AuditClient(Resource):
    """Calls the routes of this file."""

    async def list(self, asks: WhichAudit | None = None) -> AuditPage:
        """List rows of the audit log."""
        return await self._caller.call(LIST_AUDIT, asks=asks)
