"""`skep`: the list of commands, and what becomes of their errors.

A command's file is imported when it runs, and only then, so that `skep --help` answers at
once. Heavy imports stay inside the functions that need them.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence
from typing import NoReturn

import click

from skep import __version__
from skep.cli.exits import Exit, code_of
from skep.errors import SkepError

#: Command: what it is for. Its file in this folder has its name, and its help begins so.
COMMANDS: dict[str, str] = {
    "up": "Start a center and an agent on this machine.",
    "demo": "See it work: crawl a bundled site of 1,000 pages.",
    "new": "Write the first lines of a spider.",
    "run": "Run a spider.",
    "shell": "Try selectors on a page, in Python.",
    "fetch": "Download one page as an agent would.",
    "parse": "Show what a spider makes of one page.",
    "replay": "Parse the archived pages of a run again, and compare the items.",
    "data": "Take items and pages out of a run.",
    "job": "Keep jobs, show them, run them.",
    "generator": "Try out generators of jobs; show what they did in a run.",
    "app": "List instances of applications; read their logs, restart or stop them.",
    "submit": "Put requests into a run.",
    "info": "Show the state of everything on one screen.",
    "runs": "List runs; show, pause, continue, restart, finish, cancel or revive one.",
    "failures": "List failures by what went wrong; show, retry, cancel or forget them.",
    "request": "Show a request and every attempt at it; list or cancel many.",
    "why": "Say what a request, block, run, job or host waits for.",
    "storage": "Show what is kept, what was deleted and what will be; notices, too.",
    "schedule": "Show when jobs run by themselves; try out a cron line.",
    "agents": "List agents; show, label, cordon, drain, restart, end or revoke one.",
    "token": "Make, list and revoke tokens of people and agents.",
    "placement": "Show who works for a run and why others do not; what would move.",
    "dispatch": "Dispatch one round by hand, or show the log of dispatches.",
    "sites": "List hosts; show how one is treated, set or clear its rule.",
    "doctor": "Check this machine and the center, and say how to mend what is wrong.",
    "center": "Start a center alone.",
    "agent": "Start an agent that works for a center.",
    "cluster": "Try several centers on this machine.",
    "completion": "Print the completion script for a shell.",
    "version": "Show the version.",
}


class LazyGroup(click.Group):
    """Knows its commands by name and imports one when it is asked for."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        if cmd_name not in COMMANDS:
            return None
        module = importlib.import_module(f"skep.cli.{cmd_name}")
        found: click.Command = module.command
        return found

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        """From the table: asking each command would import them all."""
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] not in COMMANDS and not args[0].startswith("-"):
            known = ", ".join(COMMANDS)
            raise click.UsageError(f"{args[0]!r} is not a command; there are {known}.", ctx)
        return super().resolve_command(ctx, args)


@click.command(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="skep", help="Show the version and exit.")
def skep() -> None:
    """Collect data with machines of your own.

    Begin with `skep demo`, then `skep up`. Every command explains itself with --help.
    """


def main() -> NoReturn:
    """The program."""
    sys.exit(run(sys.argv[1:]))


def run(arguments: Sequence[str]) -> int:
    """The exit code of a command line. Errors become one line on stderr."""
    try:
        return int(skep.main(list(arguments), prog_name="skep", standalone_mode=False) or 0)
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except (click.Abort, KeyboardInterrupt):
        click.echo("interrupted", err=True)
        return Exit.INTERRUPTED
    except SkepError as error:
        click.echo(f"error: {error.detail} ({error.code})", err=True)
        return code_of(error)
    except OSError as error:
        if error.filename is None:  # not about a file of the user's: a bug, shown as one
            raise
        click.echo(f"error: {error.filename}: {error.strerror}", err=True)
        return Exit.FAILED
