"""Log in and out, the caller's own account, and sessions: types and routes."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from skep.model.message_bounds import FilterText, exact
from skep.model.people.user import SessionView
from skep.wire.api.caller import Resource
from skep.wire.api.listing import Listed, PageKey
from skep.wire.api.route import Route

#: A name that cannot exist is accepted here: the answer is that of a wrong password.
TypedName = Annotated[str, Meta(max_length=64)]
Secret = Annotated[str, Meta(max_length=1024)]
#: A new password; a shorter one is refused with a message.
Password = Annotated[Secret, Meta(extra_json_schema=exact(minLength=8))]


class LoginForm(msgspec.Struct, forbid_unknown_fields=True):
    """A login by password (`user`, `password`), or by a one-time link (`kind`, `link`)."""

    #: The way to log in: password or link.
    kind: Annotated[
        str, Meta(max_length=32, extra_json_schema=exact(enum=["password", "link"]))
    ] = "password"
    #: Name of the user; only for a login by password.
    user: TypedName = ""
    #: The password; only for a login by password.
    password: Secret = ""
    #: The secret part of a login link: what follows `#` in its URL.
    link: Secret = ""


class Me(msgspec.Struct):
    """The caller."""

    #: The user, or `token:NAME` for a token.
    who: str
    #: Role of the caller: viewer, operator or admin.
    role: str
    #: Labels of the objects that the caller may see and change; empty = all.
    scope: list[str]
    #: Id of the session; empty for a token.
    session: str = ""


class LoggedIn(msgspec.Struct):
    """A new session. Its secret id is in the cookie only."""

    #: Name of the user.
    user: str
    #: Id of the session, as lists show it.
    session: str
    #: Time at which it ends, in seconds since the epoch; it ends earlier if it is not used.
    expires_at: float


class LoggedOut(msgspec.Struct):
    """The session has ended."""

    #: Id of the session that ended; empty if the caller had none.
    session: str = ""


class OwnPassword(msgspec.Struct, forbid_unknown_fields=True):
    """A new password of the caller."""

    #: The present password; not needed by a user who has none.
    old: Secret
    #: The new password, 8 to 1024 characters.
    new: Password


class EndedSessions(msgspec.Struct):
    """How many sessions ended."""

    #: Number of sessions that ended.
    sessions: int


class SessionPage(msgspec.Struct):
    """Which sessions to list."""

    #: Only sessions of this user; admins only, others get their own. Empty = all.
    user: TypedName = ""
    #: Maximum number of sessions, newest first.
    limit: Annotated[int, Meta(ge=1, le=1000)] = 100
    #: Only sessions after the one with this id; `next` of the previous answer.
    after: Annotated[str, Meta(max_length=100)] = ""
    #: A filter, see the page on filters. With it, even an empty one, pages follow `page`.
    filter: FilterText | None = None
    #: `next_page` of the last answer; empty = the first page.
    page: PageKey = ""


class SessionList(Listed):
    """Newest first; continue with `after=next`, or with `page` when there is a filter."""

    items: list[SessionView]
    #: `after` of the next page; null on the last one.
    next: str | None = None


LOG_IN = Route(
    "log_in",
    "POST",
    "/api/v1/login",
    LoggedIn,
    takes=LoginForm,
    example={"user": "anna", "password": "correct horse battery"},
)
LOG_OUT = Route("log_out", "POST", "/api/v1/logout", LoggedOut)
GET_ME = Route("get_me", "GET", "/api/v1/me", Me)
SET_OWN_PASSWORD = Route(
    "set_own_password",
    "PUT",
    "/api/v1/me/password",
    EndedSessions,
    takes=OwnPassword,
    example={"old": "correct horse battery", "new": "a longer password"},
)
LIST_SESSIONS = Route("list_sessions", "GET", "/api/v1/sessions", SessionList, asks=SessionPage)
END_SESSION = Route("end_session", "DELETE", "/api/v1/sessions/{session}", SessionView)


class LoginClient(Resource):
    """Calls the routes of this file."""

    async def log_in(self, body: LoginForm) -> LoggedIn:
        """Log in; the session is in a cookie, which this client does not keep."""
        return await self._caller.call(LOG_IN, body=body)

    async def log_out(self) -> LoggedOut:
        """End the session of the caller."""
        return await self._caller.call(LOG_OUT)

    async def me(self) -> Me:
        """Show who the caller is."""
        return await self._caller.call(GET_ME)

    async def set_password(self, body: OwnPassword) -> EndedSessions:
        """Change the caller's own password."""
        return await self._caller.call(SET_OWN_PASSWORD, body=body)

    async def sessions(self, asks: SessionPage | None = None) -> SessionList:
        """List sessions."""
        return await self._caller.call(LIST_SESSIONS, asks=asks)

    async def end_session(self, session: str) -> SessionView:
        """End a session."""
        return await self._caller.call(END_SESSION, session)
