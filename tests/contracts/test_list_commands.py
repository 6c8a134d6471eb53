"""Every list of the API that takes a filter has a command that takes the same filter."""

from __future__ import annotations

import click
import pytest

from skep.center.app import api_table
from skep.cli.main import skep
from skep.cli.terminal.filter_completion import suggestions
from skep.cli.terminal.filters import FilterArgument, FilterCommand
from skep.wire.filter.tables import TABLES

#: Operation of the API: the command that lists the same, and the resource of its filter.
COMMANDS = {
    "list_requests": ("request ls", "requests"),
    "list_runs": ("runs ls", "runs"),
    "list_jobs": ("job ls", "jobs"),
    "list_agents": ("agents ls", "agents"),
    "list_sites": ("sites ls", "hosts"),
    "list_tokens": ("token ls", "tokens"),
    "list_deliveries": ("data deliveries", "deliveries"),
    "list_dispatches": ("dispatch", "dispatches"),
    "list_schedules": ("schedule ls", "schedules"),
    "list_job_fires": ("schedule fires", "fires"),
    "list_alerts": ("alerts ls", "alerts"),
    "list_notices": ("storage", "notices"),
    "list_audit": ("audit", "audit"),
    "list_failure_groups": ("failures groups", "failure-groups"),
    "list_operations": ("op ls", "operations"),
    "list_users": ("user ls", "users"),
    "list_sessions": ("user sessions", "sessions"),
    "list_log_lines": ("logs", "logs"),
    "read_new_log_lines": ("logs", "logs"),
    "get_log_file": ("logs", "logs"),
}


def filterable() -> set[str]:
    """Operations whose query has a filter."""
    routes = [one.route for one in api_table()]
    asked = {one.id: getattr(one.asks, "__struct_fields__", ()) for one in routes}
    return {name for name, fields in asked.items() if "filter" in fields}


def command_of(path: str) -> click.Command:
    found: click.Command = skep
    for word in path.split():
        assert isinstance(found, click.Group)
        following = found.get_command(click.Context(found), word)
        assert following is not None, path
        found = following
    return found


def test_every_filterable_list_has_a_command() -> None:
    """R3: one filter language for the API and the command line."""
    assert filterable() == COMMANDS.keys()


@pytest.mark.parametrize(("path", "resource"), sorted(set(COMMANDS.values())))
def test_the_command_takes_a_filter(path: str, resource: str) -> None:
    """R3: the filter is its last argument, with the fields of the list, and is completed."""
    command = command_of(path)
    arguments = [one for one in command.params if isinstance(one, click.Argument)]
    filter_ = arguments[-1]
    assert isinstance(command, FilterCommand)
    assert isinstance(filter_, FilterArgument)
    assert filter_.resource == resource
    options = {name for one in command.params for name in one.opts}
    assert {"--json", "--center"} <= options
    assert {"--limit", "--lines"} & options
    offered = {item.value for item in suggestions(resource, "")}
    assert offered == {f"{name}:" for name in TABLES[resource].names()}


@pytest.mark.parametrize("path", sorted({path for path, _ in COMMANDS.values()}))
def test_the_help_names_the_fields(path: str) -> None:
    command = command_of(path)
    text = " ".join(command.get_help(click.Context(command, info_name=path)).split())
    resource = dict(COMMANDS.values())[path]
    assert f"Fields of FILTER: {', '.join(TABLES[resource].names())}" in text
