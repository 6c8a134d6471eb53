"""Decides whether and when a failed request is retried. Pure.

Retry-After takes precedence over the back-off; a failure that a retry would meet again is not
retried.
"""

from __future__ import annotations

from random import Random

from skep.model.failures.failure_class import HOPELESS, FailureClass
from skep.model.request import Outcome
from skep.runtime.backoff import Backoff
from skep.store.ports.blocks import RetryFacts

#: Client errors that can pass: timeout, too early, too many requests.
PASSING_STATUS = frozenset({408, 425, 429})
#: Maximum Retry-After that is obeyed, in seconds.
RETRY_AFTER_CAP = 86_400.0


def worth_retrying(outcome: Outcome) -> bool:
    """Whether the same request could succeed later."""
    if outcome.failure in HOPELESS:
        return False
    if outcome.failure == FailureClass.STATUS:
        return outcome.status >= 500 or outcome.status in PASSING_STATUS  # noqa: PLR2004
    return True


def backoff_of(facts: RetryFacts, usual: Backoff) -> Backoff:
    """The back-off of the run over that of the center. A first delay of the run that is longer
    than the center's maximum is used as given."""
    if not facts.backoff_first and not facts.backoff_cap:
        return usual
    first = facts.backoff_first or usual.first
    return Backoff(first, facts.backoff_cap or max(first, usual.cap))


def again_at(
    outcome: Outcome, failures: int, retries: int, now: float, backoff: Backoff, rng: Random
) -> float | None:
    """When to retry after `failures` earlier failures; None = never."""
    if failures >= retries or not worth_retrying(outcome):
        return None
    delay = backoff.delay(failures + 1, rng)
    if outcome.retry_after is not None:
        delay = max(delay, min(outcome.retry_after, RETRY_AFTER_CAP))
    return now + delay
