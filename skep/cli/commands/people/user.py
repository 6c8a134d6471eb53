"""`skep user`: creates, lists, changes and deletes users; passwords, login links, sessions.

A password is read from the terminal or from standard input, never from an argument.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal

import click

from skep.cli.terminal.center_calls import ask, connected
from skep.cli.terminal.center_options import calls_center
from skep.cli.terminal.filters import (
    FilterCommand,
    ListQuery,
    filter_options,
    no_match,
    plain_word,
    show_page,
)
from skep.cli.terminal.line_wrapping import wide_option
from skep.cli.terminal.options import json_option
from skep.cli.terminal.output import age, show, show_exact, show_json, table
from skep.cli.terminal.password_prompt import read_password
from skep.embed.center_address import CenterAddress
from skep.runtime.clock import SystemClock

if TYPE_CHECKING:
    from skep.model.people.user import SessionView, User
    from skep.wire.client.api import CenterApi

ROLES = click.Choice(["viewer", "operator", "admin"])
UserRole = Literal["viewer", "operator", "admin"]
HEAD = ("USER", "ROLE", "GROUPS", "STATE", "PASSWORD", "LAST LOGIN", "CREATED")
SESSIONS_HEAD = ("SESSION", "USER", "BEGUN", "USED", "ADDRESS", "BY", "CLIENT")


@click.group("user")
def command() -> None:
    """Create, list and change users; make login links; end sessions.

    A viewer can read everything, an operator can also change runs and jobs, and an admin can do
    everything. Groups limit a user to objects with certain labels (`skep group`).
    """


@command.command("add")
@click.argument("name")
@click.option("--role", type=ROLES, default="viewer", show_default=True, help="Role of the user.")
@click.option("--group", "groups", multiple=True, help="Group that limits the user; repeatable.")
@click.option("--link", is_flag=True, help="Set no password; print a login link instead.")
@json_option
@calls_center
def add(
    reach: CenterAddress,
    name: str,
    role: UserRole,
    groups: tuple[str, ...],
    link: bool,
    as_json: bool,
) -> None:
    """Create a user.

    The password is asked for, or read from standard input.
    """
    from skep.wire.api.people.users import NewUser

    new = NewUser(name, role, list(groups), "" if link else read_password(name))

    async def create(api: CenterApi) -> tuple[User, str]:
        user = await api.users.create(new)
        return user, (await api.users.create_link(name)).url if link else ""

    user, url = ask(reach, create)
    if as_json:
        show_json({"user": user, "url": url} if link else user)
        return
    show(f"{user.name} is created with role {user.role}")
    if link:
        show_exact(url)


@command.command("ls", cls=FilterCommand)
@filter_options("users", 100)
@wide_option
@json_option
@calls_center
def ls(reach: CenterAddress, query: ListQuery, as_json: bool) -> None:
    """List users: all, or those that match a filter (`role:admin`)."""
    if query.given:
        _search(reach, query, as_json)
        return
    users = asyncio.run(_all(reach))
    show_json({"items": users}) if as_json else show(users_table(users, SystemClock().now()))


def _search(reach: CenterAddress, query: ListQuery, as_json: bool) -> None:
    from skep.wire.api.people.users import UserPage

    page = ask(reach, lambda api: query.find(api, api.users.list, UserPage))
    if as_json:
        show_json(page)
        return
    text = users_table(page.items, SystemClock().now())
    show_page(text if page.items else no_match(query, page, text), page, len(page.items))


async def _all(reach: CenterAddress) -> list[User]:
    """All users, read page by page."""
    from skep.wire.api.people.users import UserPage

    users: list[User] = []
    after = ""
    async with connected(reach) as client:
        while True:
            page = await client.api.users.list(UserPage(after=after))
            users += page.items
            if not (after := page.next or ""):
                return users


@command.command("role")
@click.argument("name")
@click.argument("role", type=ROLES)
@json_option
@calls_center
def role(reach: CenterAddress, name: str, role: UserRole, as_json: bool) -> None:
    """Change the role of a user, at every center within 5 s."""
    _change(reach, name, as_json, role=role)


@command.command("groups")
@click.argument("name")
@click.argument("groups", nargs=-1)
@click.option("--none", "nowhere", is_flag=True, help="Remove the user from all groups.")
@json_option
@calls_center
def groups(
    reach: CenterAddress, name: str, groups: tuple[str, ...], nowhere: bool, as_json: bool
) -> None:
    """Set the groups of a user; a user without groups sees everything."""
    if bool(groups) == nowhere:
        raise click.UsageError("name the groups of the user, or use --none to remove all of them")
    _change(reach, name, as_json, groups=list(groups))


@command.command("disable")
@click.argument("name")
@json_option
@calls_center
def disable(reach: CenterAddress, name: str, as_json: bool) -> None:
    """Disable a user and end the sessions."""
    _change(reach, name, as_json, disabled=True)


@command.command("enable")
@click.argument("name")
@json_option
@calls_center
def enable(reach: CenterAddress, name: str, as_json: bool) -> None:
    """Enable a disabled user."""
    _change(reach, name, as_json, disabled=False)


@command.command("passwd")
@click.argument("name")
@json_option
@calls_center
def passwd(reach: CenterAddress, name: str, as_json: bool) -> None:
    """Set the password of a user.

    It is asked for, or read from standard input. All sessions of the user end.
    """
    from skep.wire.api.people.users import NewPassword

    body = NewPassword(read_password(name))
    ended = ask(reach, lambda api: api.users.set_password(name, body))
    show_json(ended) if as_json else show(f"{name} has a new password; {_ended(ended.sessions)}")


@command.command("link")
@click.argument("name")
@json_option
@calls_center
def link(reach: CenterAddress, name: str, as_json: bool) -> None:
    """Print a login link, which is valid once, for 10 minutes."""
    made = ask(reach, lambda api: api.users.create_link(name))
    show_json(made) if as_json else show_exact(made.url)


@command.command("rm")
@click.argument("name")
@json_option
@calls_center
def rm(reach: CenterAddress, name: str, as_json: bool) -> None:
    """Delete a user and end the sessions.

    Private views are deleted, too; the audit log keeps the name.
    """
    deleted = ask(reach, lambda api: api.users.delete(name))
    show_json(deleted) if as_json else show(f"{name} is deleted")


@command.command("sessions", cls=FilterCommand)
@click.argument("name", default="")
@filter_options("sessions", 100)
@wide_option
@json_option
@calls_center
def sessions(reach: CenterAddress, name: str, query: ListQuery, as_json: bool) -> None:
    """List sessions: all, those of one user (`anna`), or those that match a filter
    (`user:anna since:2h`)."""
    from skep.wire.api.people.login import SessionPage

    if query.given or not _is_name(name):
        _search_sessions(reach, name, query, as_json)
        return
    page = ask(reach, lambda api: api.login.sessions(SessionPage(user=name, limit=1000)))
    if as_json:
        show_json(page)
        return
    show(sessions_table(page.items, SystemClock().now()))
    if page.next:
        show("there are more; name a user")


def _is_name(word: str) -> bool:
    """Whether it can be the name of a user, or is empty; otherwise a filter begins with it."""
    from skep.model.people.user import NAME_PATTERN

    return not word or re.fullmatch(NAME_PATTERN, plain_word(word)) is not None


def _search_sessions(reach: CenterAddress, name: str, query: ListQuery, as_json: bool) -> None:
    from skep.wire.api.people.login import SessionPage

    user = name if _is_name(name) else ""
    if not user and name:
        query = replace(query, words=(plain_word(name), *query.words))
    page = ask(reach, lambda api: query.find(api, api.login.sessions, SessionPage, user=user))
    if as_json:
        show_json(page)
        return
    text = sessions_table(page.items, SystemClock().now())
    show_page(text if page.items else no_match(query, page, text), page, len(page.items))


@command.command("logout")
@click.argument("name")
@json_option
@calls_center
def logout(reach: CenterAddress, name: str, as_json: bool) -> None:
    """End all sessions of a user, at every center within 5 s."""
    ended = ask(reach, lambda api: api.users.end_sessions(name))
    show_json(ended) if as_json else show(_ended(ended.sessions))


def _change(reach: CenterAddress, name: str, as_json: bool, **fields: Any) -> None:
    from skep.wire.api.people.users import ChangedUser

    user = ask(reach, lambda api: api.users.change(name, ChangedUser(**fields)))
    show_json(user) if as_json else show(users_table([user], SystemClock().now()))


def _ended(count: int) -> str:
    return f"{count} session{'' if count == 1 else 's'} ended"


def users_table(users: Sequence[User], now: float) -> str:
    """As text."""
    return table(HEAD, [_row(user, now) for user in users], spare=("CREATED", "PASSWORD"))


def _row(user: User, now: float) -> tuple[object, ...]:
    login = "-" if user.login_at is None else f"{age(now - user.login_at)} ago"
    state = "disabled" if user.disabled else "enabled"
    made = f"{age(now - user.created_at)} ago"
    password = "yes" if user.has_password else "no"
    return user.name, user.role, ", ".join(user.groups) or "-", state, password, login, made


def sessions_table(items: Sequence[SessionView], now: float) -> str:
    """As text."""
    if not items:
        return "no sessions; `skep user link NAME` prints a link to log in with"
    rows = [
        (
            one.id,
            one.user,
            f"{age(now - one.created_at)} ago",
            f"{age(now - one.seen_at)} ago",
            one.address,
            one.method,
            one.client,
        )
        for one in items
    ]
    return table(SESSIONS_HEAD, rows, spare=("CLIENT", "BEGUN"))
