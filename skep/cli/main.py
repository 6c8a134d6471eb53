"""`skep`: the list of commands, and the exit code and message for each error.

The file of a command is imported only when the command runs, so that `skep --help` is fast.
Heavy imports stay inside the functions that need them.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Sequence
from inspect import cleandoc
from typing import NoReturn

import click

from skep import __version__
from skep.cli.terminal.exit_codes import ExitCode, code_of
from skep.cli.terminal.output import say
from skep.cli.terminal.program_name import program, with_hints
from skep.errors import SkepError
from skep.runtime.process_exit import Leaving

#: Group: command: description. The file of a command is `commands/GROUP/NAME.py`; its help
#: begins with the same description.
GROUPS: dict[str, dict[str, str]] = {
    "Crawl": {
        "up": "Start a center and an agent on this machine.",
        "demo": "Try Skep: crawl a bundled site of 1,000 pages.",
        "run": "Run a spider.",
        "submit": "Add requests to a run.",
        "fetch": "Download one page as an agent would.",
    },
    "Jobs": {
        "job": "Create, show, change and run jobs.",
        "schedule": "Show the schedules of jobs; test a cron expression.",
        "generator": "Test the generators of a job; show what they did in a run.",
        "pipeline": "Check pipeline documents and run their tests.",
        "app": "List application instances; read their logs, restart or stop them.",
    },
    "Results": {
        "runs": "List runs; show, pause, continue, restart, finish, cancel or revive one.",
        "data": "Export the items and pages of a run.",
        "request": "Show a request and its attempts; list or cancel requests.",
        "failures": "List failures by cause; show, retry, cancel or forget them.",
        "view": "Save, list and remove views: filters of lists under a name.",
        "why": "Explain what a request, block, run, job or host waits for.",
    },
    "Fleet": {
        "agents": "List agents; show, label, cordon, drain, restart, end or revoke one.",
        "agent": "Start an agent that works for a center.",
        "token": "Create, list and revoke tokens of users and agents.",
        "placement": "Show the agents of a run and why others are excluded; preview moves.",
        "sites": "List hosts; show one, set or clear its rule.",
    },
    "People": {
        "user": "Create, list and change users; make login links; end sessions.",
        "group": "Create, list and delete groups of users.",
        "secret": "Set, list and remove stored secrets; change the key that encrypts them.",
        "audit": "List changes and refused calls, newest first.",
    },
    "Operate": {
        "info": "Show the state of everything on one screen.",
        "alerts": "List alerts; acknowledge or mute them; show and change alert rules.",
        "chart": "Show figures over time as text. Without NAMES, list the series.",
        "bulk": "Retry, cancel, delete, pause, label or export everything that a filter matches.",
        "op": "List bulk operations; show, watch, download or cancel one.",
        "watch": "Print changes of runs, jobs, agents, requests or operations as they happen.",
        "doctor": "Check this machine and the center, and explain how to fix problems.",
        "logs": "Search, follow and export the log lines of all processes.",
        "backup": "Back up a center, even while it runs.",
        "restore": "Restore a backup into an empty data folder.",
        "archive": "Rebuild database rows from archived pages.",
        "storage": "Show stored data, past and planned deletions, and notices.",
        "dispatch": "Run one dispatch round manually, or show the dispatch log.",
        "center": "Start a center without an agent.",
        "cluster": "Run several centers on this machine, for testing.",
    },
    "Develop": {
        "new": "Create a spider from a template.",
        "shell": "Test selectors on a page in a Python shell.",
        "parse": "Show what a spider extracts from one page.",
        "replay": "Parse the archived pages of a run again and compare the items.",
        "completion": "Print the completion script for a shell.",
        "version": "Show the version.",
    },
}
COMMANDS: dict[str, str] = {name: text for group in GROUPS.values() for name, text in group.items()}
#: Command: the folder of its group.
FOLDERS = {name: group.lower() for group, names in GROUPS.items() for name in names}
#: Maximum width of help texts: longer lines are hard to read, even on a wide terminal.
WIDEST_HELP = 200
#: The variable with which the completion script of a shell calls the program.
COMPLETION = "_SKEP_COMPLETE"


class LazyGroup(click.Group):
    """Knows the names of its commands and imports a command when it is requested."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        if cmd_name not in COMMANDS:
            return None
        module = importlib.import_module(f"skep.cli.commands.{FOLDERS[cmd_name]}.{cmd_name}")
        found: click.Command = module.command
        return found

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        """Uses the table; reading the help of each command would import all of them."""
        longest = max(map(len, COMMANDS))
        for group, commands in GROUPS.items():
            with formatter.section(group):
                formatter.write_dl([(name.ljust(longest), text) for name, text in commands.items()])

    def format_help_text(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        """Wraps the text with the words that start this program, which can be a long path."""
        formatter.write_paragraph()
        with formatter.indentation():
            formatter.write_text(with_hints(cleandoc(self.help or "")))

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] not in COMMANDS and not args[0].startswith("-"):
            raise click.UsageError(unknown_command(args[0]), ctx)
        return super().resolve_command(ctx, args)


def unknown_command(word: str) -> str:
    """Suggest similar commands, or list all commands if none is similar."""
    from difflib import get_close_matches

    near = get_close_matches(word, COMMANDS)
    if near:
        return f"{word!r} is not a command; did you mean {' or '.join(near)}?"
    return f"{word!r} is not a command; the commands are {', '.join(COMMANDS)}."


@click.command(
    cls=LazyGroup,
    context_settings={
        "help_option_names": ["-h", "--help"],
        "max_content_width": WIDEST_HELP,
    },
)
@click.version_option(__version__, prog_name="skep", help="Show the version and exit.")
def skep() -> None:
    """Collect data with your own machines.

    Start with `skep demo`, then `skep up`.

    Every command explains its options with --help.
    """


def main() -> NoReturn:
    """Entry point of the program."""
    leaving = Leaving()
    leaving.prepare()
    leaving.code = run(sys.argv[1:])
    sys.exit(leaving.code)


def _called(arguments: list[str]) -> int:
    if COMPLETION in os.environ:
        from skep.cli.terminal.bash_completion import use_line_completion

        use_line_completion()
    # The name of the variable is fixed: the program may have been started by its path.
    code = skep.main(arguments, prog_name=program(), complete_var=COMPLETION, standalone_mode=False)
    return int(code or 0)


def run(arguments: Sequence[str]) -> int:
    """Run a command line and return its exit code. Errors become one line on stderr."""
    try:
        return _called(list(arguments))
    except click.ClickException as error:
        from skep.cli.terminal.usage_errors import show_error

        show_error(error)
        return error.exit_code
    except (click.Abort, KeyboardInterrupt):
        say("interrupted")
        return ExitCode.INTERRUPTED
    except SkepError as error:
        say(f"error: {error.detail} ({error.code})")
        return code_of(error)
    except OSError as error:
        if error.filename is None:  # not about a user's file: a bug, so show the traceback
            raise
        say(f"error: {error.filename}: {error.strerror}")
        return ExitCode.FAILED
