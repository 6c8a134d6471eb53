"""Unified diffs as lines with a look. Pure."""

from __future__ import annotations

from dataclasses import dataclass

#: Lines that are shown; a longer diff is cut.
LINES_LIMIT = 2000


@dataclass(frozen=True, slots=True)
class DiffLine:
    """`look` is "" (unchanged), `plus`, `minus` or `place`."""

    text: str
    look: str = ""


def diff_lines(diff: str) -> list[DiffLine]:
    return [DiffLine(line, _look(line)) for line in diff.split("\n")[:LINES_LIMIT] if line]


def _look(line: str) -> str:
    if line.startswith(("+++", "---", "@@")):
        return "place"
    return {"+": "plus", "-": "minus"}.get(line[:1], "")


def document_in(diff: str) -> str:
    """The text that a diff from nothing adds."""
    lines = diff.split("\n")
    return "\n".join(line[1:] for line in lines[3:] if line.startswith("+"))
