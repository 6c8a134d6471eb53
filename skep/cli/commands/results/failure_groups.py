"""`skep failures groups`, `resolve`, `ignore` and `reopen`: failure groups with their state."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from skep.cli.terminal.center_calls import ask
from skep.cli.terminal.center_options import calls_center
from skep.cli.terminal.filters import FilterCommand, ListQuery, filter_options, no_match, show_page
from skep.cli.terminal.line_wrapping import wide_option
from skep.cli.terminal.options import json_option
from skep.cli.terminal.output import age, show, show_json, table
from skep.embed.center_address import CenterAddress
from skep.runtime.clock import SystemClock

if TYPE_CHECKING:
    from skep.wire.api.monitoring.failure_groups import GroupPage

HEAD = ("STATE", "DEAD", "DIED", "FAILURE", "LAST", "GROUP", "NOTE")
STATES = ("open", "resolved", "ignored")
#: Groups on a page.
SHOWN = 50


@click.command("groups", cls=FilterCommand)
@filter_options("failure-groups", SHOWN)
@click.option("--state", type=click.Choice(STATES), default=None, help="Only these groups.")
@click.option("--host", default="", help="Host of the requests.")
@wide_option
@json_option
@calls_center
def groups(reach: CenterAddress, query: ListQuery, state: Any, host: str, as_json: bool) -> None:
    """List failure groups with their state, last seen first: all, or those that match a filter
    (`dead:>100 error:timeout`)."""
    if query.words or query.page:
        _search(reach, query, {"state": state or "", "host": host}, as_json)
        return
    from skep.wire.api.monitoring.failure_groups import WhichGroups

    which = WhichGroups(state or "", host, limit=query.limit or SHOWN)
    page = ask(reach, lambda api: api.failure_groups.list(which))
    show_json(page) if as_json else show(kept_groups_table(page))


def _search(
    reach: CenterAddress, query: ListQuery, narrowed: dict[str, Any], as_json: bool
) -> None:
    from skep.wire.api.monitoring.failure_groups import WhichGroups

    page = ask(reach, lambda api: query.find(api, api.failure_groups.list, WhichGroups, **narrowed))
    if as_json:
        show_json(page)
        return
    text = kept_groups_table(page)
    show_page(text if page.items else no_match(query, page, text), page, len(page.items))


def kept_groups_table(page: GroupPage) -> str:
    """As text."""
    if not page.items:
        return "no failure groups"
    now = SystemClock().now()
    rows = [
        (
            one.state,
            one.dead,
            one.died,
            f"{one.failure} {one.status or ''}".strip(),
            f"{age(now - one.last_at)} ago",
            one.group,
            one.note or one.text[:60],
        )
        for one in page.items
    ]
    return table(HEAD, rows, spare=("DIED", "LAST"))


def add_to(command: click.Group) -> None:
    """Add the commands of this file to `skep failures`."""
    command.add_command(groups)
    texts = {
        "resolve": "Resolve a failure group. If the failure returns, it is an alert.",
        "ignore": "Ignore a failure group.",
        "reopen": "Reopen a failure group.",
    }
    for name, text in texts.items():
        command.add_command(_change(name, text))


def _change(name: str, text: str) -> click.Command:
    @click.command(name, help=text, short_help=text.partition(".")[0] + ".")
    @click.argument("group")
    @click.option("--note", default=None, help="A note for people; default: it stays.")
    @json_option
    @calls_center
    def change(reach: CenterAddress, group: str, note: str | None, as_json: bool) -> None:
        from skep.wire.api.monitoring.failure_groups import GroupChange

        body = GroupChange(note)
        kept = ask(reach, lambda api: getattr(api.failure_groups, name)(group, body))
        show_json(kept) if as_json else show(f"{kept.group}: {kept.state}")

    return change
