"""When a failed or delayed message is processed again, and when it is dead. Pure; randomness is
an argument."""

from __future__ import annotations

from random import Random

from skep.model.pipelines.document import RetryPart
from skep.pipelines.engine.message import InFlow
from skep.pipelines.engine.outcomes import Kind, Outcome, Stage

#: Doublings after which every delay has reached its maximum; larger powers would overflow.
_DOUBLINGS = 40


class RetryRules:
    """The retry rules of one pipeline."""

    def __init__(self, part: RetryPart, random: Random) -> None:
        self._part = part
        self._random = random

    def failed(self, flow: InFlow, stage: Stage, reason: str, now: float) -> Outcome:
        """Due again after a back-off, or dead after its last error."""
        errors = flow.arrived.errors + 1
        if errors > self._part.limit:
            return self.dead(flow, stage, reason)
        due = now + self._backoff(errors)
        return self._waiting(Kind.FAILED, flow, stage, reason, due, self._expiry(flow, now))

    def delayed(
        self, flow: InFlow, stage: Stage, reason: str, now: float, after: float, expires: float = 0
    ) -> Outcome:
        """Due again after `after` seconds, or after a back-off; not an error."""
        due = now + (after or self._backoff(flow.arrived.tries + 1))
        ends = now + expires if expires else self._expiry(flow, now)
        if flow.arrived.expires:  # a message cannot extend its own life
            ends = min(ends, flow.arrived.expires) if ends else flow.arrived.expires
        return self._waiting(Kind.DELAYED, flow, stage, reason, due, ends)

    def dead(self, flow: InFlow, stage: Stage, reason: str) -> Outcome:
        errors = flow.arrived.errors + 1
        return Outcome(Kind.DEAD, stage, reason, errors=errors, done=tuple(flow.done))

    def _waiting(
        self, kind: Kind, flow: InFlow, stage: Stage, reason: str, due: float, ends: float
    ) -> Outcome:
        if ends and due >= ends:
            return self.dead(flow, stage, f"expired: {reason}")
        errors = flow.arrived.errors + (kind is Kind.FAILED)
        return Outcome(kind, stage, reason, due, ends, errors, tuple(flow.done))

    def _expiry(self, flow: InFlow, now: float) -> float:
        if flow.arrived.expires or not self._part.expires:
            return flow.arrived.expires
        return now + self._part.expires

    def _backoff(self, times: int) -> float:
        """Doubles from `first` to `most`; between half and all of it, so that retries spread."""
        full = min(self._part.first * 2.0 ** min(times - 1, _DOUBLINGS), self._part.most)
        return full * self._random.uniform(0.5, 1.0)
