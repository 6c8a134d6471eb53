"""Output of commands: data on stdout, everything else on stderr.

Text is wrapped on a terminal, and never in a pipe, so that `cut` and `awk` can read it. Commands
in messages can be pasted (`program`). Colors mark what needs attention, only on a terminal and
never when NO_COLOR is set.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import Any

import click

from skep.cli.terminal.line_wrapping import GAP, cell_lines, columns, widths_for, wrapped
from skep.cli.terminal.program_name import with_hints
from skep.cli.terminal.short_ids import Id, short_forms


def say(text: str) -> None:
    """Print a message to stderr."""
    click.echo(wrapped(with_hints(text), columns(sys.stderr)), err=True)


def show(text: str) -> None:
    """Print text to stdout, wrapped on a terminal."""
    click.echo(wrapped(with_hints(text), columns(sys.stdout)))


def show_exact(text: str) -> None:
    """Print text that must not be wrapped: a document, a diff, a token."""
    click.echo(text)


def show_json(value: Any) -> None:
    """Print one JSON document, indented on a terminal and compact in a pipe. Answers of a center
    are printed as the center sent them."""
    import msgspec

    from skep.cli.terminal.center_calls import as_sent

    data = msgspec.json.encode(as_sent(value))
    click.echo(msgspec.json.format(data, indent=2) if sys.stdout.isatty() else data)


def colored(text: str, color: str) -> str:
    """Add a color; click removes it if the output is a pipe."""
    return text if os.environ.get("NO_COLOR") else click.style(text, fg=color)


def harmless(text: str) -> str:
    """Escape control characters in foreign text, so that it cannot move the cursor, change colors
    or reverse the text direction."""
    if text.isprintable():
        return text
    return "".join(one if one.isprintable() else ascii(one)[1:-1] for one in text)


def harmless_lines(data: bytes) -> str:
    """Like `harmless`, for text with several lines."""
    lines = data.decode("utf-8", "backslashreplace").split("\n")
    return "\n".join(harmless(line.rstrip("\r").expandtabs()) for line in lines)


def table(head: Sequence[str], rows: Sequence[Sequence[object]], spare: Sequence[str] = ()) -> str:
    """Format a table. Columns are as wide as their longest cell. On a narrow terminal, cells are
    wrapped and columns are left out: `spare` first, then from the right."""
    limit = columns(sys.stdout)
    if limit is None:
        return _lines([[harmless(str(cell)) for cell in row] for row in [head, *rows]])
    places = list(range(len(head)))
    cells = _short([head, *rows])
    left_out: list[str] = []
    while (widths := widths_for([[row[n] for n in places] for row in cells], limit)) is None:
        if len(places) <= LEAST_COLUMNS:
            return _records(cells)
        left_out.append(head[_drop(places, head, spare)])
    text = _lines([[row[n] for n in places] for row in cells], widths)
    return f"{text}\n({', '.join(reversed(left_out))}: --wide)" if left_out else text


#: If not even this many columns fit, each row is printed as a list of fields.
LEAST_COLUMNS = 2


def _drop(places: list[int], head: Sequence[str], spare: Sequence[str]) -> int:
    """Remove one column; keep the first, and the last while there are others."""
    for name in spare:
        if name in head and head.index(name) in places:
            found = head.index(name)
            places.remove(found)
            return found
    return places.pop(-2 if len(places) > LEAST_COLUMNS else -1)


def _short(rows: Sequence[Sequence[object]]) -> list[list[str]]:
    """Convert cells to text and ids to their short forms."""
    forms = short_forms(str(cell) for row in rows for cell in row if isinstance(cell, Id))
    return [
        [
            harmless(forms[str(cell)] if isinstance(cell, Id) else " ".join(str(cell).split()))
            for cell in row
        ]
        for row in rows
    ]


def _lines(cells: Sequence[Sequence[str]], widths: Sequence[int] | None = None) -> str:
    whole = widths is None
    widths = widths or [max(len(row[place]) for row in cells) for place in range(len(cells[0]))]
    lines: list[str] = []
    for row in cells:
        pairs = zip(row, widths, strict=True)
        split = [[cell] if whole else cell_lines(cell, width) for cell, width in pairs]
        for number in range(max(len(part) for part in split)):
            parts = [part[number] if number < len(part) else "" for part in split]
            padded = (part.ljust(width) for part, width in zip(parts, widths, strict=True))
            lines.append((" " * GAP).join(padded).rstrip())
    return "\n".join(lines)


def _records(cells: Sequence[Sequence[str]]) -> str:
    head, *rows = cells
    width = max(len(name) for name in head)
    sheets = (
        "\n".join(f"{name:<{width}}  {cell}" for name, cell in zip(head, row, strict=True))
        for row in rows
    )
    return "\n\n".join(sheets)


def age(seconds: float) -> str:
    """Format a duration in a suitable unit."""
    for size, unit in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{max(seconds, 0):.0f} s" if seconds >= 10 else f"{max(seconds, 0):.1f} s"  # noqa: PLR2004
