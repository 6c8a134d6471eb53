"""The ledger as a bar that adds up: parts with their widths. Pure.

The same bar is on the overview, on runs and on jobs. A difference between the two sides of the
equation is shown, never hidden by rounding.
"""

from __future__ import annotations

from dataclasses import dataclass

from skep.model.ledger import Ledger
from skep.model.states import RequestState
from skep.portal.show.numbers import share

#: From left to right; the classes of the style sheet have the same names.
ORDER = (
    RequestState.DONE,
    RequestState.WAITING,
    RequestState.QUEUED,
    RequestState.LEASED,
    RequestState.DELAYED,
    RequestState.DEAD,
    RequestState.CANCELLED,
    RequestState.EXPIRED,
)
#: States that are named even when they are empty.
ALWAYS = frozenset({RequestState.DONE, RequestState.WAITING, RequestState.DEAD})
#: Width of the bar, and the least width of a part that is not empty.
WIDTH, LEAST, GAP = 1000.0, 4.0, 2.0


@dataclass(frozen=True, slots=True)
class LedgerPart:
    """One state: its count, its share as text, its place in the bar."""

    state: str
    count: int
    share: str
    x: float
    width: float


@dataclass(frozen=True, slots=True)
class LedgerBar:
    accepted: int
    unaccounted: int
    parts: tuple[LedgerPart, ...]
    #: The filter of requests that a part links to; "" = no link.
    within: str = ""

    @property
    def drawn(self) -> tuple[LedgerPart, ...]:
        return tuple(part for part in self.parts if part.width)


def ledger_bar(ledger: Ledger, within: str = "") -> LedgerBar:
    """`within` is a filter for the links, such as `run:NAME`."""
    counts = [(state, ledger.of(state)) for state in ORDER]
    shown = [(state, count) for state, count in counts if count or state in ALWAYS]
    widths = _widths([count for _, count in shown])
    parts: list[LedgerPart] = []
    at = 0.0
    for (state, count), width in zip(shown, widths, strict=True):
        text = share(count, ledger.total)
        parts.append(LedgerPart(state.name.lower(), count, text, round(at, 2), round(width, 2)))
        at += width + (GAP if width else 0)
    return LedgerBar(ledger.accepted, ledger.unaccounted, tuple(parts), within)


def _widths(counts: list[int]) -> list[float]:
    """In proportion, but a part with requests is always visible."""
    filled = [count for count in counts if count]
    if not filled:
        return [0.0] * len(counts)
    room = WIDTH - GAP * (len(filled) - 1) - LEAST * len(filled)
    total = sum(filled)
    return [LEAST + room * count / total if count else 0.0 for count in counts]
