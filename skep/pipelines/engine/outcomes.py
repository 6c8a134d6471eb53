"""What becomes of a message: exactly one outcome each, and their counts. Pure.

Outcomes add up to the input: `Tally.balanced` says whether they do.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from enum import StrEnum

import msgspec

#: Reasons that are counted one by one; further ones are counted together.
REASON_LIMIT = 1000
_OTHER = "other reasons"


class Kind(StrEnum):
    """`out`: every output has it. `dropped`: on purpose. `delayed` and `failed`: to the pool, for
    a later time. `dead`: to the pool, for a person."""

    OUT = "out"
    DROPPED = "dropped"
    DELAYED = "delayed"
    FAILED = "failed"
    DEAD = "dead"


class Stage(StrEnum):
    """The stage that decided the outcome."""

    PARSE = "parse"
    FILTER = "filter"
    TRACE = "trace"
    OWNER = "owner"
    EXTRAS = "extras"
    OPERATIONS = "operations"


class Outcome(msgspec.Struct, frozen=True):
    """The outcome of one message."""

    kind: Kind
    stage: Stage = Stage.OPERATIONS
    reason: str = ""
    #: When a delayed or failed message is due again, in seconds since 1970.
    due: float = 0.0
    #: After this time it is dead; 0 = never.
    expires: float = 0.0
    #: Errors so far, this one included.
    errors: int = 0
    #: Outputs that have accepted the message: a retry does not repeat them.
    done: tuple[str, ...] = ()


OUT = Outcome(Kind.OUT)


class Tally:
    """Counts of messages: taken in, and by outcome."""

    def __init__(self) -> None:
        self.taken = 0
        self.kinds: Counter[Kind] = Counter()
        #: (kind, stage, reason) of every outcome but `out`.
        self.reasons: Counter[tuple[Kind, Stage, str]] = Counter()

    def count(self, outcomes: Iterable[Outcome]) -> None:
        for one in outcomes:
            self.kinds[one.kind] += 1
            if one.kind is not Kind.OUT:
                self.reasons[self._key(one)] += 1

    def _key(self, one: Outcome) -> tuple[Kind, Stage, str]:
        key = (one.kind, one.stage, one.reason)
        full = len(self.reasons) >= REASON_LIMIT and key not in self.reasons
        return (one.kind, one.stage, _OTHER) if full else key

    @property
    def balanced(self) -> bool:
        """Whether every message has exactly one outcome."""
        return self.taken == self.kinds.total()
