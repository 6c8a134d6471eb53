"""Fits text to the terminal: lines are wrapped between words, never inside a word.

Only for a terminal. Lines for a pipe or a file are not wrapped, so that `cut` and `awk` can read
them; `--wide` does the same on a terminal. Pure, except that it reads the terminal size.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Sequence
from typing import IO, Any

import click

#: Spaces between two columns.
GAP = 2
#: Minimum width of a text column before other columns are left out.
NARROW = 16
#: Minimum width: narrower terminals are treated as this wide.
LEAST = 20
MARK = "…"
_WIDE = "skep.cli.wide"
#: A label: a word and at least two spaces. The text of the label follows.
_LABEL = re.compile(r"\s*\S[^:]{0,20}?\s{2,}|\s*\d+\.\s+|\s*")


def _set_wide(context: click.Context, _option: object, value: bool) -> None:
    if value:
        context.meta[_WIDE] = True


#: For commands that print tables; `table` and `show` read it from the context.
wide_option = click.option(
    "--wide",
    is_flag=True,
    expose_value=False,
    callback=_set_wide,
    help="Show full ids and all columns, without wrapping.",
)


def is_wide() -> bool:
    context = click.get_current_context(silent=True)
    return bool(context and context.meta.get(_WIDE))


def columns(stream: IO[Any]) -> int | None:
    """The maximum width; None if there is no limit."""
    if is_wide() or not stream.isatty():
        return None
    return max(shutil.get_terminal_size().columns, LEAST)


def no_color() -> bool:
    return bool(os.environ.get("NO_COLOR"))


def wrapped(text: str, width: int | None) -> str:
    """Wrap every line to `width`; a longer word gets its own line."""
    if width is None:
        return text
    return "\n".join(_wrapped_line(line, width) for line in text.split("\n"))


def _wrapped_line(line: str, width: int) -> str:
    if _length(line) <= width:
        return line
    label = _LABEL.match(line)
    indent = len(label[0]) if label else 0
    indent = indent if indent <= width // 2 else 2
    lines = [line[:indent]]
    begins = True
    for word in line[indent:].split():
        if not begins and _length(lines[-1]) + 1 + _length(word) > width:
            lines.append(" " * indent)
            begins = True
        lines[-1] += word if begins else f" {word}"
        begins = False
    return "\n".join(lines)


def _length(text: str) -> int:
    return len(click.unstyle(text))


def fitted_parts(parts: Sequence[str], width: int | None) -> str:
    """Join parts into one line; leave out the last parts if the line is too long, because a
    progress line is redrawn and must not wrap."""
    shown = list(parts)
    while width is not None and len(shown) > 1 and len(" · ".join(shown)) >= width:
        shown.pop()
    return " · ".join(shown)


def cell_lines(cell: str, width: int) -> list[str]:
    """Wrap a cell between words; a word that is too long is shown by its two ends."""
    lines = [""]
    for word in cell.split(" "):
        shown = word if len(word) <= width else ends_of(word, width)
        if lines[-1] and len(lines[-1]) + 1 + len(shown) > width:
            lines.append("")
        lines[-1] = f"{lines[-1]} {shown}" if lines[-1] else shown
    return lines


def ends_of(word: str, width: int) -> str:
    """`http://host/a/lo…page/3`; `--wide` shows the full word."""
    tail = (width - 1) // 3
    return word[: width - 1 - tail] + MARK + (word[-tail:] if tail else "")


def widths_for(cells: Sequence[Sequence[str]], limit: int) -> list[int] | None:
    """The width of each column so that a row fits; None if there are too many columns. The
    first row contains the headings."""
    natural = [max(len(row[place]) for row in cells) for place in range(len(cells[0]))]
    room = limit - GAP * (len(natural) - 1)
    if sum(natural) <= room:
        return natural
    least = [_least(cells, place, natural[place]) for place in range(len(natural))]
    if sum(least) > room:
        return None
    return _spread(natural, least, room)


def _least(cells: Sequence[Sequence[str]], place: int, natural: int) -> int:
    """Minimum width: headings are never cut; cells may be wrapped and cut down to NARROW."""
    head = max((len(word) for word in cells[0][place].split()), default=0)
    words = (len(word) for row in cells[1:] for word in row[place].split())
    return min(natural, max(head, min(max(words, default=0), NARROW)))


def _spread(natural: Sequence[int], least: Sequence[int], room: int) -> list[int]:
    """Distribute the width; the widest columns shrink first."""
    cap = max(natural)
    while True:
        widths = [min(want, max(low, cap)) for want, low in zip(natural, least, strict=True)]
        if sum(widths) <= room:
            return widths
        cap -= 1
