"""Log in and out, the caller's own account, and sessions. Run by centers.

The secret id of a session is in the cookie only: no answer and no log contains it.
"""

from __future__ import annotations

from skep.access.credentials import digest_of
from skep.access.passwords import check_password
from skep.access.sessions import LoginOrigin
from skep.center.api.listing import is_one_of, listed_own
from skep.center.http.authentication import Role
from skep.center.http.endpoint import Call, Endpoint, Scoping
from skep.center.http.session_cookie import check_not_foreign
from skep.errors import Conflict, Forbidden, InvalidInput, NotFound, TooManyTries, Unauthorized
from skep.model.filter.checked import CheckedTerm
from skep.model.people.user import SessionView, session_id
from skep.wire.api.people.login import (
    END_SESSION,
    GET_ME,
    LIST_SESSIONS,
    LOG_IN,
    LOG_OUT,
    SET_OWN_PASSWORD,
    EndedSessions,
    LoggedIn,
    LoggedOut,
    LoginForm,
    Me,
    OwnPassword,
    SessionList,
    SessionPage,
)

#: Maximum bytes of a body with a password.
FORM_BYTES = 16 * 1024


async def log_in(call: Call) -> LoggedIn:
    """Begin a session; the session that the browser had before ends."""
    check_not_foreign(call.headers)
    before = digest_of(call.session) if call.session else b""
    origin = LoginOrigin(call.origin, call.headers.get("user-agent", ""), before)
    people = call.services.people
    try:
        secret, session = await people.logins.log_in(call.body, origin)
    except Unauthorized:
        call.audit.object = await _tried_user(call)
        raise
    call.audit.who, call.audit.object = session.user, f"user:{session.user}"
    seconds = int(session.expires_at - session.created_at)
    call.answer_headers["set-cookie"] = people.cookie.written(secret, seconds, call.scheme)
    return LoggedIn(session.user, session_id(session.digest), session.expires_at)


async def _tried_user(call: Call) -> str:
    """The object of a failed login, for the audit log. An unknown name is left out: it may be a
    password in the wrong field."""
    form: LoginForm = call.body
    known = form.user and await call.services.store.users.login(form.user) is not None
    return f"user:{form.user}" if known else ""


async def log_out(call: Call) -> LoggedOut:
    """End the session of the caller and delete its cookie."""
    if call.who.session:
        await call.services.auth.sessions.end(call.who.session)
    call.answer_headers["set-cookie"] = call.services.people.cookie.written("", 0, call.scheme)
    return LoggedOut(session_id(call.who.session) if call.who.session else "")


async def me(call: Call) -> Me:
    """Who the caller is."""
    who = call.who
    session = session_id(who.session) if who.session else ""
    return Me(who.who, who.role, list(who.scope.labels), session)


async def set_own_password(call: Call) -> EndedSessions:
    """Change the own password; all other sessions end."""
    message: OwnPassword = call.body
    name, people, store = call.who.user, call.services.people, call.services.store
    if not name:
        raise Conflict("a token has no password; log in as a user, or use `skep user passwd`")
    call.audit.object = f"user:{name}"
    check_password(message.new)
    found = await store.users.login(name)
    if found is None:
        raise Unauthorized("the session has ended; log in again")
    if found[1]:
        await people.logins.prove_password(name, message.old, call.origin)
    encoded = await people.passwords.hash(message.new)
    now = call.services.clock.now()
    ended = await store.users.set_password(name, encoded, now, call.who.session)
    call.services.auth.forget()
    return EndedSessions(ended)


async def list_sessions(call: Call) -> SessionList:
    """Admins see all sessions, others their own."""
    page: SessionPage = call.query
    user = page.user if _sees_all(call) else call.who.user
    if not user and not _sees_all(call):
        return SessionList([])
    if page.filter is not None:
        found, more = await listed_own(call, "sessions", *_of_user(user))
        return SessionList(found, **more)
    items = await call.services.store.sessions.all(user, page.limit, page.after)
    return SessionList(items, items[-1].id if len(items) == page.limit else None)


def _of_user(user: str) -> list[CheckedTerm]:
    return [is_one_of("user", user)] if user else []


async def end_session(call: Call) -> SessionView:
    """Admins end any session, others their own."""
    user = "" if _sees_all(call) else call.who.user
    if not user and not _sees_all(call):
        raise NotFound("a token has no sessions of its own; log in as a user")
    return await call.services.auth.sessions.end_one(call.path["session"], user)


def _sees_all(call: Call) -> bool:
    return call.who.role is Role.ADMIN and not call.who.scope


ENDPOINTS = (
    Endpoint(
        LOG_IN,
        Role.PUBLIC,
        log_in,
        "Log in",
        errors=(InvalidInput, Unauthorized, Forbidden, TooManyTries),
        tag="users",
        body_limit=FORM_BYTES,
        audits_state=False,
        notes="Sets a session cookie: `HttpOnly`, `SameSite=Lax`, and `Secure` under TLS.",
        scoped=Scoping.OWN,
    ),
    Endpoint(
        LOG_OUT,
        Role.VIEWER,
        log_out,
        "Log out",
        tag="users",
        audits_state=False,
        scoped=Scoping.OWN,
    ),
    Endpoint(
        GET_ME,
        Role.VIEWER,
        me,
        "Show the caller",
        tag="users",
        clear=(Me,),
        scoped=Scoping.OWN,
    ),
    Endpoint(
        SET_OWN_PASSWORD,
        Role.VIEWER,
        set_own_password,
        "Change your own password",
        errors=(InvalidInput, Conflict, TooManyTries),
        tag="users",
        body_limit=FORM_BYTES,
        audits_state=False,
        scoped=Scoping.OWN,
    ),
    Endpoint(
        LIST_SESSIONS,
        Role.VIEWER,
        list_sessions,
        "List sessions",
        errors=(InvalidInput, NotFound),
        tag="users",
        scoped=Scoping.OWN,
    ),
    Endpoint(
        END_SESSION,
        Role.VIEWER,
        end_session,
        "End a session",
        errors=(NotFound,),
        tag="users",
        scoped=Scoping.OWN,
    ),
)
