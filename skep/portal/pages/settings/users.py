"""Users: the list, add; one user: role, groups, login link, sessions, disable, delete."""

from __future__ import annotations

from urllib.parse import quote

from skep.errors import InvalidInput
from skep.model.people.user import SessionView, User
from skep.portal.page import Done, NavPlace, Outcome, Page, PageCall, View
from skep.portal.pages.settings.tabs import ROLES, shown_once, tabs_of
from skep.portal.panels import Refused, given, part, parts
from skep.portal.show.acts import Act
from skep.portal.show.cells import Cell, code_cell, name_cell, state_cell, text_cell, time_cell
from skep.portal.show.commands import command
from skep.portal.show.forms import typed
from skep.portal.show.tables import Column, Row
from skep.portal.show.times import moment
from skep.wire.api.people.login import SessionList, SessionPage
from skep.wire.api.people.users import ChangedUser, GroupList, NewUser, UserPage

_LIST = "/settings"
COLUMNS = (
    Column("settings.column_user"),
    Column("settings.column_state"),
    Column("settings.column_role"),
    Column("settings.column_password"),
    Column("settings.column_login"),
    Column("settings.column_created"),
    Column("settings.column_groups"),
)
SESSIONS = (
    Column("settings.column_session"),
    Column("settings.column_seen"),
    Column("settings.column_begun"),
    Column("settings.column_ends"),
    Column("settings.column_method"),
    Column("settings.column_address"),
    Column("settings.column_client"),
)


async def show(call: PageCall) -> Outcome:
    """`?after=` is the next page."""
    asks = UserPage(200, call.query.get("after", "")[:64])
    found = await parts(users=call.api.users.list(asks), groups=call.api.users.groups())
    users = found["users"]
    rows = users if isinstance(users, Refused) else [_row(call, one) for one in users.items]
    data = {
        "tabs": tabs_of("users"),
        "columns": COLUMNS,
        "rows": rows,
        "next": None if isinstance(users, Refused) else users.next,
        "groups": given(found["groups"], GroupList([])).items,
        "roles": ROLES,
        "command": command("user", "ls"),
    }
    return View("pages/settings_users.html", data, every=10)


def _row(call: PageCall, user: User) -> Row:
    href, texts = _path(user.name), call.texts
    cells = (
        name_cell(user.name, href),
        state_cell("disabled" if user.disabled else "enabled"),
        text_cell(texts.plain(f"frame.role_{user.role}")),
        text_cell(texts.plain("settings.yes" if user.has_password else "settings.link_only")),
        time_cell(user.login_at, call.now),
        time_cell(user.created_at, call.now),
        _groups(user.groups),
    )
    return Row(user.name, cells, href)


def _groups(names: tuple[str, ...]) -> Cell:
    return Cell("labels", [(name, name) for name in names])


def _path(name: str) -> str:
    return f"/settings/users/{quote(name, safe='')}"


async def add(call: PageCall) -> Outcome:
    values = {
        "name": call.field("name").strip(),
        "role": call.field("role"),
        "groups": call.form.get("group", []),
        "password": call.field("password"),
    }
    user = await call.api.users.create(typed(values, NewUser))
    return Done(call.texts.plain("settings.said_user", name=user.name), _path(user.name))


async def show_one(call: PageCall) -> Outcome:
    name = call.path["user"]
    user = await call.api.users.show(name)
    groups = given(await part(call.api.users.groups()), GroupList([]))
    sessions = await part(call.api.login.sessions(SessionPage(user.name)))
    data = {
        "user": user,
        "state": "disabled" if user.disabled else "enabled",
        "acts": _acts(call, user),
        "roles": ROLES,
        "groups": groups.items,
        "path": _path(user.name),
        "columns": SESSIONS,
        "rows": [_session(call, one) for one in given(sessions, SessionList([])).items],
    }
    return View("pages/settings_user.html", data, title=user.name, every=10)


def _session(call: PageCall, one: SessionView) -> Row:
    cells = (
        code_cell(one.id),
        time_cell(one.seen_at, call.now),
        time_cell(one.created_at, call.now),
        time_cell(one.expires_at, call.now),
        text_cell(one.method),
        code_cell(one.address),
        text_cell(one.client, 60),
    )
    return Row(one.id, cells)


def _acts(call: PageCall, user: User) -> list[Act]:
    if not call.may("admin"):
        return []
    turn = "enable" if user.disabled else "disable"
    commands = {turn: turn, "logout": "logout", "delete": "rm"}
    sessions = f"/api/v1/users/{quote(user.name, safe='')}/sessions"
    return [
        Act(
            f"settings.act_{verb}",
            f"{_path(user.name)}/{verb}",
            destroys=verb in {"disable", "delete"},
            confirm="" if verb == "enable" else f"settings.confirm_{verb}",
            command=command("user", words, user.name),
            api_path=sessions if verb == "logout" else sessions.removesuffix("/sessions"),
            method="PATCH" if verb == turn else "DELETE",
        )
        for verb, words in commands.items()
    ]


async def save(call: PageCall) -> Outcome:
    """Role and groups."""
    name = call.path["user"]
    values = {"role": call.field("role"), "groups": call.form.get("group", [])}
    await call.api.users.change(name, typed(values, ChangedUser))
    return Done(call.texts.plain("settings.said_saved", name=name), _path(name))


async def change(call: PageCall) -> Outcome:
    """Disable, enable, end the sessions, delete, or make a login link."""
    name, verb = call.path["user"], call.path["verb"]
    if verb == "link":
        made = await call.api.users.create_link(name)
        return shown_once(
            call, "link_made", made.url, _path(name), moment(made.expires_at, call.now)
        )
    if verb in {"disable", "enable"}:
        await call.api.users.change(name, ChangedUser(disabled=verb == "disable"))
    elif verb == "logout":
        await call.api.users.end_sessions(name)
    elif verb == "delete":
        await call.api.users.delete(name)
    else:
        raise InvalidInput(f"{verb[:50]!r} is not an act on a user")
    said = call.texts.plain(f"settings.said_{verb}", name=name)
    return Done(said, _LIST if verb == "delete" else _path(name))


PAGES = (
    Page("settings", _LIST, show, nav=NavPlace("operate", 40, "e")),
    Page("settings", "/settings/users", add, method="POST"),
    Page("settings", "/settings/users/{user}", show_one),
    Page("settings", "/settings/users/{user}", save, method="POST"),
    Page("settings", "/settings/users/{user}/{verb}", change, method="POST"),
)
