"""Cells of a table: one small constructor per sort of value. Pure.

A page builds rows of these; one macro draws them all, so numbers, times, states and names look
the same on every page and hostile values are escaped in one place.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from skep.portal.show.names import SHOWN, held, middle_cut
from skep.portal.show.numbers import NONE, duration, number, rate, share, size
from skep.portal.show.states import state_mark
from skep.portal.show.times import moment


@dataclass(frozen=True, slots=True)
class Cell:
    """`kind` chooses the markup, and whether the cell is aligned as a number."""

    kind: str
    value: Any
    #: Path of the portal, without the prefix of the proxy.
    href: str = ""
    #: A second, softer text.
    note: str = ""
    #: The whole value, on hover.
    title: str = ""

    @property
    def is_blank(self) -> bool:
        return not self.value and not self.note

    @property
    def is_number(self) -> bool:
        return self.kind == "number"


def name_cell(text: str, href: str = "", note: str = "", limit: int = SHOWN) -> Cell:
    """A name: cut in the middle, with the whole on hover."""
    shown = middle_cut(text, limit)
    return Cell("name", shown, href, note, held(text) if shown != text else "")


def text_cell(text: str, limit: int = 120) -> Cell:
    """A sentence or another value of any length."""
    shown = middle_cut(text, limit)
    return Cell("text", shown, title=held(text) if shown != text else "")


def code_cell(text: str, limit: int = SHOWN) -> Cell:
    """A machine's text: an id, a command, an expression."""
    shown = middle_cut(text, limit)
    return Cell("code", shown, title=held(text) if shown != text else "")


def count_cell(value: float | None, href: str = "") -> Cell:
    return Cell("number", number(value), href)


def rate_cell(value: float | None) -> Cell:
    return Cell("number", f"{rate(value)}/s" if value else NONE)


def size_cell(value: float | None) -> Cell:
    return Cell("number", size(value))


def duration_cell(seconds: float | None) -> Cell:
    return Cell("number", duration(seconds))


def share_cell(part: float, whole: float) -> Cell:
    return Cell("number", share(part, whole))


def state_cell(word: str, note: str = "") -> Cell:
    return Cell("state", state_mark(word), note=note)


def time_cell(at: float | None, now: float) -> Cell:
    return Cell("time", moment(at, now))


def labels_cell(labels: dict[str, str]) -> Cell:
    texts = [f"{name}={value}" if value else name for name, value in sorted(labels.items())]
    return Cell("labels", [(middle_cut(text, 30), held(text)) for text in texts])


def empty_cell() -> Cell:
    return Cell("text", "")
