"""The ledger: accepted requests, and their states. The two sums must always be equal.

Pure data, for every process. A request leaves a count only by entering another one.
"""

from __future__ import annotations

import msgspec

from skep.model.states import RequestState


class Ledger(msgspec.Struct, frozen=True):
    """Counts of requests by state, for one run or all runs."""

    accepted: int = 0
    waiting: int = 0
    queued: int = 0
    leased: int = 0
    delayed: int = 0
    done: int = 0
    dead: int = 0
    cancelled: int = 0
    expired: int = 0
    #: Ended requests whose rows were deleted since; not a state of its own.
    forgotten: int = 0

    def of(self, state: RequestState) -> int:
        return int(getattr(self, state.name.lower()))

    @property
    def total(self) -> int:
        """The right-hand side of the equation."""
        return sum(self.of(state) for state in RequestState)

    @property
    def unaccounted(self) -> int:
        """Always zero. Any other value is a bug, and it is shown."""
        return self.accepted - self.total

    @property
    def open(self) -> int:
        """Requests that have not ended."""
        return self.waiting + self.queued + self.leased + self.delayed

    def line(self) -> str:
        """The equation as one line, for logs and terminals; omits states without requests."""
        counts = [(self.of(state), state.name.lower()) for state in RequestState]
        parts = " + ".join(f"{count} {name}" for count, name in counts if count)
        verdict = "" if not self.unaccounted else f"  UNACCOUNTED {self.unaccounted}"
        return f"{self.accepted} accepted{f' = {parts}' if parts else ''}{verdict}"
