"""Saved views: filters of lists under a name, private or shared.

Run by centers. A view belongs to the caller who saved it; no other caller changes it. Its filter
is checked when it is saved.
"""

from __future__ import annotations

import re
from typing import Any

from skep.center.http.authentication import Role
from skep.center.http.endpoint import Call, Endpoint, Scoping
from skep.errors import Conflict, Forbidden, InvalidInput, NotFound
from skep.model.view import VIEW_NAME, VIEWS_LIMIT, View
from skep.wire.api.people.views import DELETE_VIEW, LIST_VIEWS, SAVE_VIEW, NewView, Views
from skep.wire.filter.check import read_filter
from skep.wire.filter.tables import TABLES

VIEW_NAMES: dict[str, Any] = {"view": {"type": "string", "pattern": VIEW_NAME}}


def owner_of(call: Call) -> str:
    """The name under which a caller keeps views: the user, or `token NAME`. Callers with a scope
    never share one: a filter can name what only one of them may see. Without a colon after
    `token`: viewers would get it masked, like the value of a token."""
    who = call.who
    if who.scope and not who.user:
        return f"caller:{who.credential}"
    return who.who.replace("token:", "token ", 1) or str(who.role)


async def list_views(call: Call) -> Views:
    """Views of the caller, and shared ones; a caller with a scope sees only its own."""
    owner = owner_of(call)
    found = await call.services.store.views.seen_by(owner)
    return Views([view for view in found if view.owner == owner or not call.who.scope])


async def save_view(call: Call) -> View:
    """Save a view; one of this name that the caller has is replaced."""
    asked: NewView = call.body
    if asked.shared and call.who.role is Role.VIEWER:
        raise Forbidden("sharing a view needs the role operator; save it without `shared`")
    if asked.resource not in TABLES:
        known = ", ".join(sorted(TABLES))
        raise InvalidInput(f"{asked.resource!r} is not a list; use one of {known}")
    now = call.services.clock.now()
    read_filter(asked.filter, TABLES[asked.resource], now)
    view = View(_name(call), asked.resource, asked.filter, owner_of(call), asked.shared, now)
    await call.services.store.views.save(view, VIEWS_LIMIT)
    return view


async def delete_view(call: Call) -> View:
    """Delete a view of the caller."""
    name, owner = _name(call), owner_of(call)
    views = call.services.store.views
    for view in await views.seen_by(owner):
        if (view.owner, view.name) == (owner, name) and await views.remove(owner, name):
            return view
    raise NotFound(f"{owner} has no view {name!r}; `skep view ls` lists views")


def _name(call: Call) -> str:
    name: str = call.path["view"]
    if not re.fullmatch(VIEW_NAME.removesuffix("$"), name):
        raise InvalidInput(
            f"{name[:70]!r} is not a valid name of a view; use 1 to 64 letters, digits, `.`, `_`"
            " and `-`, the first one a letter or digit"
        )
    return name


def _row(route: Any, handler: Any, summary: str, *errors: Any) -> Endpoint:
    return Endpoint(
        route,
        Role.VIEWER,
        handler,
        summary,
        errors=errors,
        tag="views",
        scoped=Scoping.OWN,
        parameters=VIEW_NAMES if errors else {},
    )


ENDPOINTS = (
    _row(LIST_VIEWS, list_views, "List saved views"),
    _row(SAVE_VIEW, save_view, "Save a view", InvalidInput, Conflict, Forbidden),
    _row(DELETE_VIEW, delete_view, "Delete a view", InvalidInput, NotFound),
)
