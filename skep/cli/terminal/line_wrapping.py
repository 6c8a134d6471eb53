"""Text that fits the terminal: wrapped between words, never inside one.

Only for a terminal. A pipe or a file gets every line whole, so that `cut` and `awk` can read
it; `--wide` does the same on a terminal. Pure but for the size of the terminal.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Sequence
from typing import IO, Any

import click

#: Between two columns.
GAP = 2
#: A column of text may become this narrow before other columns are left out.
NARROW = 16
#: Narrower terminals are treated like this one.
LEAST = 20
MARK = "…"
_WIDE = "skep.cli.wide"
#: A word and at least two spaces: what follows is the text that belongs to the label.
_LABEL = re.compile(r"\s*\S[^:]{0,20}?\s{2,}|\s*\d+\.\s+|\s*")


def _set_wide(context: click.Context, _option: object, value: bool) -> None:
    if value:
        context.meta[_WIDE] = True


#: For commands that print tables; `table` and `show` find it in the context.
wide_option = click.option(
    "--wide",
    is_flag=True,
    expose_value=False,
    callback=_set_wide,
    help="Do not fit the terminal: full ids, every column, no wrapping.",
)


def is_wide() -> bool:
    context = click.get_current_context(silent=True)
    return bool(context and context.meta.get(_WIDE))


def columns(stream: IO[Any]) -> int | None:
    """The width to keep to; None when there is none."""
    if is_wide() or not stream.isatty():
        return None
    return max(shutil.get_terminal_size().columns, LEAST)


def no_color() -> bool:
    return bool(os.environ.get("NO_COLOR"))


def wrapped(text: str, width: int | None) -> str:
    """Every line within `width`; a longer word has a line of its own."""
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
    """A line that is drawn again and again must fit: its last parts are left out."""
    shown = list(parts)
    while width is not None and len(shown) > 1 and len(" · ".join(shown)) >= width:
        shown.pop()
    return " · ".join(shown)


def cell_lines(cell: str, width: int) -> list[str]:
    """A cell between words; a word that does not fit is shown by its two ends."""
    lines = [""]
    for word in cell.split(" "):
        shown = word if len(word) <= width else ends_of(word, width)
        if lines[-1] and len(lines[-1]) + 1 + len(shown) > width:
            lines.append("")
        lines[-1] = f"{lines[-1]} {shown}" if lines[-1] else shown
    return lines


def ends_of(word: str, width: int) -> str:
    """`http://host/a/lo…page/3`: what `--wide` shows in full."""
    tail = (width - 1) // 3
    return word[: width - 1 - tail] + MARK + (word[-tail:] if tail else "")


def widths_for(cells: Sequence[Sequence[str]], limit: int) -> list[int] | None:
    """The width of each column so that a row fits, the first row being the head; None when
    the columns are too many."""
    natural = [max(len(row[place]) for row in cells) for place in range(len(cells[0]))]
    room = limit - GAP * (len(natural) - 1)
    if sum(natural) <= room:
        return natural
    least = [_least(cells, place, natural[place]) for place in range(len(natural))]
    if sum(least) > room:
        return None
    return _spread(natural, least, room)


def _least(cells: Sequence[Sequence[str]], place: int, natural: int) -> int:
    """A head is never cut; a cell may be wrapped, and its longest word cut, down to NARROW."""
    head = max((len(word) for word in cells[0][place].split()), default=0)
    words = (len(word) for row in cells[1:] for word in row[place].split())
    return min(natural, max(head, min(max(words, default=0), NARROW)))


def _spread(natural: Sequence[int], least: Sequence[int], room: int) -> list[int]:
    """As wide as possible for all: the widest columns give way first."""
    cap = max(natural)
    while True:
        widths = [min(want, max(low, cap)) for want, low in zip(natural, least, strict=True)]
        if sum(widths) <= room:
            return widths
        cap -= 1
