"""`skep completion`: prints the script that lets a shell complete commands and options.

It writes no file; the user chooses where to put the script.
"""

from __future__ import annotations

import click

from skep.cli.terminal.output import show_exact


@click.command("completion")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def command(context: click.Context, shell: str) -> None:
    """Print the completion script for a shell.

    It completes commands, options, and the fields and values of filters.

    For bash: `skep completion bash > ~/.local/share/bash-completion/completions/skep`
    """
    from click.shell_completion import get_completion_class

    from skep.cli.main import COMPLETION
    from skep.cli.terminal.bash_completion import use_line_completion

    use_line_completion()
    kind = get_completion_class(shell)
    if kind is None:
        raise click.UsageError(f"there is no completion for {shell}")
    root = context.find_root()
    show_exact(kind(root.command, {}, "skep", COMPLETION).source())
