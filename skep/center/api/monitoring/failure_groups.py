"""Failure groups: list, resolve, ignore and reopen them. Run by centers.

The groups are rows with kept counts; nothing here counts requests.
"""

from __future__ import annotations

from typing import Any

from skep.center.api.listing import check_sees_all, is_one_of, listed
from skep.center.http.authentication import Role
from skep.center.http.endpoint import Call, Endpoint, Scoping
from skep.errors import InvalidFilter, InvalidInput, NotFound
from skep.model.failures.dead_requests import FailureFilter, FailureGroup
from skep.model.failures.failure_fingerprint import GROUP
from skep.model.monitoring.failure_groups import GroupHistory, GroupQuery, GroupState, KeptGroup
from skep.model.unknown_objects import unknown_group
from skep.wire.api.monitoring.failure_groups import (
    GET_KEPT_FAILURE_GROUP,
    IGNORE_FAILURE_GROUP,
    LIST_FAILURE_GROUPS,
    REOPEN_FAILURE_GROUP,
    RESOLVE_FAILURE_GROUP,
    GroupChange,
    GroupDetails,
    GroupPage,
    WhichGroups,
)
from skep.wire.api.route import Route


async def list_groups(call: Call) -> GroupPage:
    """Groups, last seen first."""
    query: WhichGroups = call.query
    if query.filter is not None:
        return await _filtered(call, query)
    if call.who.scope:
        return await _inside(call, query)
    before = _place(query.after) if query.after else None
    wanted = GroupQuery(query.state, query.host, query.failure, query.limit, before)
    found = await call.services.store.monitoring.groups.find(wanted)
    if len(found) < query.limit:
        return GroupPage(found)
    return GroupPage(found, f"{found[-1].last_at!r}/{found[-1].group}")


async def _inside(call: Call, query: WhichGroups) -> GroupPage:
    """The largest groups with dead requests inside the scope; it has no further pages."""
    wanted = FailureFilter(host=query.host, failure=query.failure)
    found = await call.services.store.failures.groups(wanted, query.limit, call.who.scope)
    shown = [await _counted_inside(call, one) for one in found]
    return GroupPage([one for one in shown if query.state in {"", one.state}])


async def _counted_inside(call: Call, one: FailureGroup) -> KeptGroup:
    """The kept counts, history and notes are of all runs: only the state is taken from them."""
    try:
        kept, _ = await call.services.store.monitoring.groups.get(one.group)
        state = kept.state
    except NotFound:  # not kept any more
        state = "open"
    counts = one.requests, one.requests, one.first_at, one.last_at
    return KeptGroup(one.group, one.host, one.failure, one.status, one.text, *counts, state)


async def _filtered(call: Call, query: WhichGroups) -> GroupPage:
    check_sees_all(call)
    asked = {"state": query.state, "host": query.host, "error": query.failure}
    terms = [is_one_of(fact, text) for fact, text in asked.items() if text]
    items, more = await listed(call, "failure-groups", *terms)
    return GroupPage(items, **more)


def _place(text: str) -> tuple[float, str]:
    moment, _, group = text.partition("/")
    try:
        return float(moment), group
    except ValueError as error:
        raise InvalidInput(f"after: {text[:60]!r} is not a `next` of this list") from error


async def show_group(call: Call) -> GroupDetails:
    """One group with its history; without the history for a caller with a scope."""
    if call.who.scope:
        wanted = FailureFilter(group=call.path["group"])
        found = await call.services.store.failures.groups(wanted, 1, call.who.scope)
        if not found:
            raise unknown_group(call.path["group"])
        return GroupDetails(await _counted_inside(call, found[0]), GroupHistory())
    return GroupDetails(*await call.services.store.monitoring.groups.get(call.path["group"]))


async def resolve(call: Call) -> KeptGroup:
    """The cause is fixed; if the failure returns, the group is reopened and raises an alert."""
    return await _change(call, "resolved")


async def ignore(call: Call) -> KeptGroup:
    """The failure does not matter."""
    return await _change(call, "ignored")


async def reopen(call: Call) -> KeptGroup:
    """It is open again."""
    return await _change(call, "open")


async def _change(call: Call, state: GroupState) -> KeptGroup:
    asked: GroupChange = call.body
    by, now = call.who.subject or str(call.who.role), call.services.clock.now()
    note = None if asked.note is None else asked.note.replace("\0", "\ufffd")
    groups = call.services.store.monitoring.groups
    return await groups.change(call.path["group"], state, note, by, now)


_GROUP: dict[str, Any] = {
    "group": {"type": "string", "minLength": 1, "maxLength": 300, "pattern": f"^{GROUP}$"}
}


def _changes(route: Route[KeptGroup], handler: Any, summary: str, notes: str = "") -> Endpoint:
    return Endpoint(
        route,
        Role.OPERATOR,
        handler,
        summary,
        errors=(InvalidInput, NotFound),
        tag="failures",
        parameters=_GROUP,
        notes=notes,
    )


ENDPOINTS = (
    Endpoint(
        LIST_FAILURE_GROUPS,
        Role.VIEWER,
        list_groups,
        "List failure groups",
        errors=(InvalidInput, InvalidFilter),
        tag="failures",
        scoped=Scoping.FILTERED,
    ),
    Endpoint(
        GET_KEPT_FAILURE_GROUP,
        Role.VIEWER,
        show_group,
        "Show a failure group and its history",
        errors=(InvalidInput, NotFound),
        tag="failures",
        scoped=Scoping.FILTERED,
        parameters=_GROUP,
    ),
    _changes(
        RESOLVE_FAILURE_GROUP,
        resolve,
        "Resolve a failure group",
        "If the failure returns, the group is reopened and raises the alert failure_returned.",
    ),
    _changes(IGNORE_FAILURE_GROUP, ignore, "Ignore a failure group"),
    _changes(REOPEN_FAILURE_GROUP, reopen, "Reopen a failure group"),
)
