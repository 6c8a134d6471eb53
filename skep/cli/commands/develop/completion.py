"""`skep completion`: the script that lets a shell complete commands and options.

It prints; where the script goes is the user's choice. No file is touched.
"""

from __future__ import annotations

import click

from skep.cli.terminal.output import show


@click.command("completion")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def command(context: click.Context, shell: str) -> None:
    """Print the completion script for a shell.

    For bash: `skep completion bash > ~/.local/share/bash-completion/completions/skep`
    """
    from click.shell_completion import get_completion_class

    kind = get_completion_class(shell)
    if kind is None:
        raise click.UsageError(f"there is no completion for {shell}")
    root = context.find_root()
    show(kind(root.command, {}, "skep", "_SKEP_COMPLETE").source())
