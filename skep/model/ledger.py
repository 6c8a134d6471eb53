"""The ledger: what was accepted, and where it is now. The two must always agree.

Pure data, for every process. Nothing may take a request out of it but being counted elsewhere.
"""

from __future__ import annotations

import msgspec

from skep.model.states import RequestState


class Ledger(msgspec.Struct, frozen=True):
    """Counts of requests by state, for one run or over all."""

    accepted: int = 0
    waiting: int = 0
    queued: int = 0
    leased: int = 0
    delayed: int = 0
    done: int = 0
    dead: int = 0
    cancelled: int = 0
    expired: int = 0
    #: Of the ended ones, those whose rows were deleted since; no state of its own.
    forgotten: int = 0

    def of(self, state: RequestState) -> int:
        return int(getattr(self, state.name.lower()))

    @property
    def total(self) -> int:
        """The right-hand side of the equation."""
        return sum(self.of(state) for state in RequestState)

    @property
    def unaccounted(self) -> int:
        """Zero, always. Anything else is a bug, and it is shown."""
        return self.accepted - self.total

    @property
    def open(self) -> int:
        """Requests that still have a way to go."""
        return self.waiting + self.queued + self.leased + self.delayed

    def line(self) -> str:
        """The equation as one line, for logs and terminals; states without requests are left
        out."""
        counts = [(self.of(state), state.name.lower()) for state in RequestState]
        parts = " + ".join(f"{count} {name}" for count, name in counts if count)
        verdict = "" if not self.unaccounted else f"  UNACCOUNTED {self.unaccounted}"
        return f"{self.accepted} accepted{f' = {parts}' if parts else ''}{verdict}"
