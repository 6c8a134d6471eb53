"""Users and groups: types and routes."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from skep.model.message_bounds import LABEL_TERM, FilterText, exact
from skep.model.people.scope import TERM_LIMIT, TERMS_LIMIT
from skep.model.people.user import NAME_PATTERN, User, UserGroup
from skep.wire.api.caller import Resource
from skep.wire.api.listing import Listed, PageKey
from skep.wire.api.people.login import EndedSessions, Password, Secret
from skep.wire.api.route import Route

GROUPS_LIMIT = 64
UserName = Annotated[str, Meta(max_length=1000, extra_json_schema=exact(pattern=NAME_PATTERN))]
UserRole = Literal["viewer", "operator", "admin"]
GroupNames = Annotated[list[UserName], Meta(max_length=GROUPS_LIMIT)]
Term = Annotated[str, Meta(max_length=TERM_LIMIT, extra_json_schema=exact(pattern=LABEL_TERM))]


class NewUser(msgspec.Struct, forbid_unknown_fields=True):
    """A user to create."""

    #: Name of the user.
    name: UserName
    role: UserRole = "viewer"
    #: Groups that limit what the user sees; none = the user sees everything.
    groups: GroupNames = msgspec.field(default_factory=list)
    #: The password, 8 to 1024 characters; empty = the user logs in by link only.
    password: Annotated[Secret, Meta(extra_json_schema=exact(pattern=r"^(.{8,1024})?$"))] = ""


class ChangedUser(msgspec.Struct, forbid_unknown_fields=True):
    """What to change about a user; null = leave it."""

    #: The new role.
    role: UserRole | None = None
    #: Groups that limit what the user sees; an empty list = the user sees everything.
    groups: GroupNames | None = None
    #: Whether the user is disabled; this ends the sessions.
    disabled: bool | None = None


class NewPassword(msgspec.Struct, forbid_unknown_fields=True):
    """A new password; it ends all sessions of the user."""

    #: The new password, 8 to 1024 characters.
    password: Password


class UserPage(msgspec.Struct):
    """Which users to list."""

    #: Maximum number of users.
    limit: Annotated[int, Meta(ge=1, le=1000)] = 1000
    #: Only users after this name; `next` of the previous answer.
    after: Annotated[str, Meta(max_length=64)] = ""
    #: A filter, see the page on filters. With it, even an empty one, pages follow `page`.
    filter: FilterText | None = None
    #: `next_page` of the last answer; empty = the first page.
    page: PageKey = ""


class UserList(Listed):
    """By name; continue with `after=next`, or with `page` when there is a filter."""

    items: list[User]
    #: `after` of the next page; null on the last one.
    next: str | None = None


class LoginLink(msgspec.Struct):
    """A one-time login link, which is shown once."""

    #: Name of the user whom it logs in.
    user: str
    #: The secret part; `POST /api/v1/login` takes it as `link`.
    link: str
    #: The URL for a browser.
    url: str
    #: Time at which it expires, in seconds since the epoch.
    expires_at: float


class GroupLabels(msgspec.Struct, forbid_unknown_fields=True):
    """The labels of a group."""

    #: Terms such as `team=a`; members see objects that have one of these labels.
    labels: Annotated[list[Term], Meta(min_length=1, max_length=TERMS_LIMIT)]


class GroupList(msgspec.Struct):
    """By name."""

    items: list[UserGroup]


LIST_USERS = Route("list_users", "GET", "/api/v1/users", UserList, asks=UserPage)
CREATE_USER = Route(
    "create_user",
    "POST",
    "/api/v1/users",
    User,
    takes=NewUser,
    status=201,
    example={"name": "anna", "role": "operator", "password": "correct horse battery"},
)
GET_USER = Route("get_user", "GET", "/api/v1/users/{user}", User)
CHANGE_USER = Route(
    "change_user",
    "PATCH",
    "/api/v1/users/{user}",
    User,
    takes=ChangedUser,
    example={"role": "viewer"},
)
DELETE_USER = Route("delete_user", "DELETE", "/api/v1/users/{user}", User)
SET_USER_PASSWORD = Route(
    "set_user_password",
    "PUT",
    "/api/v1/users/{user}/password",
    EndedSessions,
    takes=NewPassword,
    example={"password": "correct horse battery"},
)
CREATE_LOGIN_LINK = Route(
    "create_login_link", "POST", "/api/v1/users/{user}/link", LoginLink, status=201
)
END_USER_SESSIONS = Route(
    "end_user_sessions", "DELETE", "/api/v1/users/{user}/sessions", EndedSessions
)
LIST_USER_GROUPS = Route("list_user_groups", "GET", "/api/v1/groups", GroupList)
SET_USER_GROUP = Route(
    "set_user_group",
    "PUT",
    "/api/v1/groups/{user_group}",
    UserGroup,
    takes=GroupLabels,
    example={"labels": ["site=berlin"]},
)
DELETE_USER_GROUP = Route("delete_user_group", "DELETE", "/api/v1/groups/{user_group}", UserGroup)


class UsersClient(Resource):
    """Calls the routes of this file."""

    async def list(self, asks: UserPage | None = None) -> UserList:
        """List users."""
        return await self._caller.call(LIST_USERS, asks=asks)

    async def create(self, body: NewUser) -> User:
        """Create a user."""
        return await self._caller.call(CREATE_USER, body=body)

    async def show(self, user: str) -> User:
        """Show a user."""
        return await self._caller.call(GET_USER, user)

    async def change(self, user: str, body: ChangedUser) -> User:
        """Change role, groups or whether a user is disabled."""
        return await self._caller.call(CHANGE_USER, user, body=body)

    async def delete(self, user: str) -> User:
        """Delete a user."""
        return await self._caller.call(DELETE_USER, user)

    async def set_password(self, user: str, body: NewPassword) -> EndedSessions:
        """Set the password of a user."""
        return await self._caller.call(SET_USER_PASSWORD, user, body=body)

    async def create_link(self, user: str) -> LoginLink:
        """Make a one-time login link."""
        return await self._caller.call(CREATE_LOGIN_LINK, user)

    async def end_sessions(self, user: str) -> EndedSessions:
        """End all sessions of a user."""
        return await self._caller.call(END_USER_SESSIONS, user)

    async def groups(self) -> GroupList:
        """List groups."""
        return await self._caller.call(LIST_USER_GROUPS)

    async def set_group(self, user_group: str, body: GroupLabels) -> UserGroup:
        """Create or change a group."""
        return await self._caller.call(SET_USER_GROUP, user_group, body=body)

    async def delete_group(self, user_group: str) -> UserGroup:
        """Delete a group."""
        return await self._caller.call(DELETE_USER_GROUP, user_group)
