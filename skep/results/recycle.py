"""What to do with a request that failed: again, and when, or never. Pure.

Retry-After wins over our own back-off; a failure that the same request would only meet
again is not retried.
"""

from __future__ import annotations

from random import Random

from skep.model.request import Outcome
from skep.model.states import HOPELESS, FailureClass
from skep.runtime.backoff import Backoff
from skep.store.ports.blocks import RetryFacts

#: Client errors that may be gone the next time: timeout, too early, too many requests.
PASSING_STATUS = frozenset({408, 425, 429})
#: A server may ask for patience, but not for ever.
RETRY_AFTER_CAP = 86_400.0


def worth_retrying(outcome: Outcome) -> bool:
    """Could the same request succeed later?"""
    if outcome.failure in HOPELESS:
        return False
    if outcome.failure == FailureClass.STATUS:
        return outcome.status >= 500 or outcome.status in PASSING_STATUS  # noqa: PLR2004
    return True


def backoff_of(facts: RetryFacts, usual: Backoff) -> Backoff:
    """What the run says about it, over what the center is set to. A first wait that is longer
    than the center's longest one is meant as it is said."""
    if not facts.backoff_first and not facts.backoff_cap:
        return usual
    first = facts.backoff_first or usual.first
    return Backoff(first, facts.backoff_cap or max(first, usual.cap))


def again_at(
    outcome: Outcome, failures: int, retries: int, now: float, backoff: Backoff, rng: Random
) -> float | None:
    """When to try again after `failures` earlier failures; None means never."""
    if failures >= retries or not worth_retrying(outcome):
        return None
    delay = backoff.delay(failures + 1, rng)
    if outcome.retry_after is not None:
        delay = max(delay, min(outcome.retry_after, RETRY_AFTER_CAP))
    return now + delay
