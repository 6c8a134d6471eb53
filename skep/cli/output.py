"""What commands print: data on stdout, everything else on stderr.

No box drawing, nothing cut off: what is printed can be read by `cut` and `awk` as well as
by people. Colors only on a terminal, and never when NO_COLOR is set.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import Any

import click


def say(text: str) -> None:
    """A message for the person: stderr."""
    click.echo(text, err=True)


def show(text: str) -> None:
    """Data: stdout."""
    click.echo(text)


def show_json(value: Any) -> None:
    """One JSON document; indented for a person, compact for a pipe."""
    import msgspec

    data = msgspec.json.encode(value)
    click.echo(msgspec.json.format(data, indent=2) if sys.stdout.isatty() else data)


def colored(text: str, color: str) -> str:
    """For the terminal only; click takes colors away from a pipe."""
    return text if os.environ.get("NO_COLOR") else click.style(text, fg=color)


def harmless(text: str) -> str:
    """What others wrote: nothing in it moves the cursor, colors or turns the line around."""
    if text.isprintable():
        return text
    return "".join(one if one.isprintable() else ascii(one)[1:-1] for one in text)


def harmless_lines(data: bytes) -> str:
    """The same for text of several lines."""
    lines = data.decode("utf-8", "backslashreplace").split("\n")
    return "\n".join(harmless(line.rstrip("\r").expandtabs()) for line in lines)


def table(head: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """Columns as wide as their longest cell, two spaces apart."""
    cells = [[harmless(str(cell)) for cell in row] for row in [head, *rows]]
    widths = [max(len(row[place]) for row in cells) for place in range(len(head))]
    lines = (
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        for row in cells
    )
    return "\n".join(line.rstrip() for line in lines)


def age(seconds: float) -> str:
    """A duration in the unit that a person would use."""
    for size, unit in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{max(seconds, 0):.0f} s" if seconds >= 10 else f"{max(seconds, 0):.1f} s"  # noqa: PLR2004
