"""Reads a new password: from the terminal, twice, or as one line of standard input.

Never from an argument: other users of the machine can read the arguments of a process.
"""

from __future__ import annotations

import sys

import click

#: More is not a password.
_LONGEST = 10_000


def read_password(user: str) -> str:
    """Raises UsageError if there is none."""
    if sys.stdin.isatty():
        text = f"Password for {user}"
        prompted: str = click.prompt(text, hide_input=True, confirmation_prompt=True, err=True)
        return prompted
    line = sys.stdin.readline(_LONGEST).rstrip("\r\n")
    if not line:
        raise click.UsageError(
            "no password on standard input; type the command in a terminal to be asked for it, or"
            " write the password as one line to standard input"
        )
    return line
