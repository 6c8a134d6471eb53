"""The audit log, for admins. Run by centers. Reading it is not a row of it."""

from __future__ import annotations

from skep.center.api.listing import found_page
from skep.center.http.authentication import Role
from skep.center.http.endpoint import Call, Endpoint
from skep.errors import InvalidFilter, InvalidInput
from skep.wire.api.people.audit import LIST_AUDIT, AuditPage, WhichAudit
from skep.wire.filter.check import read_filter
from skep.wire.filter.tables import AUDIT


async def list_audit(call: Call) -> AuditPage:
    """Rows that the filter finds, newest first."""
    which: WhichAudit = call.query
    if not which.after:
        found, more = await found_page(call, "audit")
        return AuditPage(found.items, None if found.next is None else found.next[0], **more)
    if which.page:
        raise InvalidInput("send either page or after, not both")
    wanted = read_filter(which.filter, AUDIT, call.services.clock.now())
    page = await call.services.store.audit.page(wanted, which.limit, which.after)
    return AuditPage(page.items, page.next, scanned=page.scanned)


ENDPOINTS = (
    Endpoint(
        LIST_AUDIT,
        Role.ADMIN,
        list_audit,
        "List changes and refused calls",
        errors=(InvalidInput, InvalidFilter),
        tag="users",
        notes="Newest first. While `next_page` is not null, continue with `page=next_page`, even if"
        " a page is empty: a filter that no index serves reads a bounded number of rows per call.",
    ),
)
