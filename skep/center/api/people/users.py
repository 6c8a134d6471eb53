"""Users and groups, for admins. Run by centers.

A password arrives in a body and is hashed at once; no answer and no log contains it.
"""

from __future__ import annotations

from typing import Any

from skep.access.passwords import check_password
from skep.center.api.listing import listed
from skep.center.api.people.login import FORM_BYTES
from skep.center.http.authentication import Role
from skep.center.http.endpoint import Call, Endpoint
from skep.errors import Conflict, InvalidInput, NotFound, SkepError, TooManyTries
from skep.model.people.scope import checked_terms
from skep.model.people.user import NAME_PATTERN, User, UserChange, UserGroup, check_name
from skep.wire.api.people.login import EndedSessions
from skep.wire.api.people.users import (
    CHANGE_USER,
    CREATE_LOGIN_LINK,
    CREATE_USER,
    DELETE_USER,
    DELETE_USER_GROUP,
    END_USER_SESSIONS,
    GET_USER,
    LIST_USER_GROUPS,
    LIST_USERS,
    SET_USER_GROUP,
    SET_USER_PASSWORD,
    ChangedUser,
    GroupList,
    LoginLink,
    NewUser,
    UserList,
    UserPage,
)
from skep.wire.api.route import Route

_NAME = {"type": "string", "pattern": NAME_PATTERN}
NAMES: dict[str, Any] = {"user": _NAME, "user_group": _NAME}


async def list_users(call: Call) -> UserList:
    """All users, by name."""
    page: UserPage = call.query
    if page.filter is not None:
        found, more = await listed(call, "users")
        return UserList(found, **more)
    items = await call.services.store.users.all(page.limit, page.after)
    return UserList(items, items[-1].name if len(items) == page.limit else None)


async def create_user(call: Call) -> User:
    """Create a user; without a password the user logs in by link."""
    message: NewUser = call.body
    check_name(message.name)
    call.audit.object = f"user:{message.name}"
    encoded = (
        await call.services.people.passwords.hash(message.password) if message.password else ""
    )
    now = call.services.clock.now()
    groups = list(dict.fromkeys(message.groups))
    return await call.services.store.users.add(message.name, message.role, groups, encoded, now)


async def show_user(call: Call) -> User:
    """One user."""
    return await call.services.store.users.get(_user(call))


async def change_user(call: Call) -> User:
    """Change role, groups, or whether the user is disabled; at every center within seconds."""
    message: ChangedUser = call.body
    groups = None if message.groups is None else tuple(dict.fromkeys(message.groups))
    change = UserChange(message.role, groups, message.disabled)
    now = call.services.clock.now()
    changed = await call.services.store.users.change(_user(call), change, now)
    call.services.auth.forget()
    return changed


async def delete_user(call: Call) -> User:
    """Delete a user with the sessions; rows of the audit log keep the name."""
    deleted = await call.services.store.users.remove(_user(call))
    call.services.auth.forget()
    return deleted


async def set_password(call: Call) -> EndedSessions:
    """Set a password; all sessions of the user end."""
    password: str = call.body.password
    name, services = _user(call), call.services
    check_password(password)
    await services.store.users.get(name)
    encoded = await services.people.passwords.hash(password)
    ended = await services.store.users.set_password(name, encoded, services.clock.now())
    services.auth.forget()
    return EndedSessions(ended)


async def create_link(call: Call) -> LoginLink:
    """Make a one-time login link."""
    name, services = _user(call), call.services
    secret, until = await services.people.links.make(name)
    return LoginLink(name, secret, services.people.link_url(services.address.get(), secret), until)


async def end_sessions(call: Call) -> EndedSessions:
    """End all sessions of a user."""
    name = _user(call)
    await call.services.store.users.get(name)
    return EndedSessions(await call.services.auth.sessions.end_all(name))


async def list_groups(call: Call) -> GroupList:
    """All groups, by name."""
    return GroupList(await call.services.store.users.groups())


async def set_group(call: Call) -> UserGroup:
    """Create a group or replace its labels."""
    name = call.path["user_group"]
    check_name(name, "group name")
    labels, now = checked_terms(call.body.labels), call.services.clock.now()
    group = await call.services.store.users.set_group(name, labels, now)
    call.services.auth.forget()
    return group


async def delete_group(call: Call) -> UserGroup:
    """Delete a group without members."""
    check_name(call.path["user_group"], "group name")
    return await call.services.store.users.remove_group(call.path["user_group"])


def _user(call: Call) -> str:
    name = call.path["user"]
    check_name(name)
    return name


def _row(
    route: Route[Any], handler: Any, summary: str, *errors: type[SkepError], bytes_: int = 0
) -> Endpoint:
    return Endpoint(
        route,
        Role.ADMIN,
        handler,
        summary,
        errors=(InvalidInput, *errors),
        tag="users",
        parameters=NAMES,
        body_limit=bytes_,
    )


ENDPOINTS = (
    _row(LIST_USERS, list_users, "List users"),
    _row(
        CREATE_USER,
        create_user,
        "Create a user",
        Conflict,
        NotFound,
        TooManyTries,
        bytes_=FORM_BYTES,
    ),
    _row(GET_USER, show_user, "Show a user", NotFound),
    _row(CHANGE_USER, change_user, "Change a user", NotFound, Conflict),
    _row(DELETE_USER, delete_user, "Delete a user", NotFound, Conflict),
    _row(
        SET_USER_PASSWORD,
        set_password,
        "Set the password of a user",
        NotFound,
        TooManyTries,
        bytes_=FORM_BYTES,
    ),
    _row(CREATE_LOGIN_LINK, create_link, "Make a one-time login link", NotFound),
    _row(END_USER_SESSIONS, end_sessions, "End all sessions of a user", NotFound),
    _row(LIST_USER_GROUPS, list_groups, "List groups of users"),
    _row(SET_USER_GROUP, set_group, "Create or change a group of users"),
    _row(DELETE_USER_GROUP, delete_group, "Delete a group of users", NotFound, Conflict),
)
