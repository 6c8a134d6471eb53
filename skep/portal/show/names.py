"""Names of any length: cut in the middle, with the whole on hover. Pure."""

from __future__ import annotations

#: Characters that a table shows of a name.
SHOWN = 40
#: Characters that a page holds of one value; a longer one is cut for good.
HELD = 2000
_GAP = "…"


def middle_cut(text: str, limit: int = SHOWN) -> str:
    """The start and the end of a long text; a short one unchanged."""
    if len(text) <= limit:
        return text
    head = (limit - 1 + 1) // 2
    tail = limit - 1 - head
    return f"{text[:head]}{_GAP}{text[len(text) - tail :]}"


def held(text: str) -> str:
    """The text for a `title`: bounded, so that a page stays small."""
    return text if len(text) <= HELD else middle_cut(text, HELD)
