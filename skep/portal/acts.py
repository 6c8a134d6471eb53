"""Acts that the caller may use: of bulk bars, from the API's list."""

from __future__ import annotations

from skep.portal.page import PageCall
from skep.portal.panels import given, part
from skep.wire.api.operations import ActLine, Acts

#: Arguments that may be left out.
_OPTIONAL = frozenset({"old_revision"})


async def acts_for(call: PageCall, resource: str) -> list[ActLine]:
    """The acts on a list; none for a caller who may only look."""
    if not call.may("operator"):
        return []
    found = given(await part(call.api.operations.acts()), Acts([]))
    admin = call.may("admin")
    usable = [
        act
        for act in found.items
        if act.resource == resource
        and _OPTIONAL.issuperset(act.arguments)
        and (admin or not act.admin)
    ]
    return sorted(usable, key=lambda act: act.destroys)
