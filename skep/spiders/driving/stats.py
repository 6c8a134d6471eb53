"""The figures of a spider's run, for progress bars and the last line. Pure.

Runs where the spider runs. They need not add up exactly; the ledger does.
"""

from __future__ import annotations

import msgspec


class Stats(msgspec.Struct):
    """Counted since the engine started; a run that is continued starts from zero."""

    pages: int = 0
    #: Requests that ended without a page, after all their retries.
    failed: int = 0
    items: int = 0
    #: Requests that were new to the run, and those that it had already.
    requests: int = 0
    known: int = 0
    #: Archived bytes that were read.
    bytes: int = 0
    callback_errors: int = 0
    #: Requests that were not sent: too deep, to another host, not a URL.
    too_deep: int = 0
    elsewhere: int = 0
    not_urls: int = 0
    #: Pages by HTTP status; failures by their kind.
    statuses: dict[int, int] = msgspec.field(default_factory=dict)
    failures: dict[str, int] = msgspec.field(default_factory=dict)
    turns: int = 0
    #: Requests of the run that have not ended, at the last reading.
    open: int = 0
    seconds: float = 0.0

    @property
    def pages_per_second(self) -> float:
        return self.pages / self.seconds if self.seconds > 0 else 0.0


class Ending(msgspec.Struct, frozen=True):
    """Why a run of the engine ended: a word for programs, a sentence for people."""

    reason: str
    sentence: str
    stats: Stats

    @property
    def good(self) -> bool:
        """Ended as its author wanted it to."""
        return self.reason in GOOD


FINISHED = "finished"
PAUSED = "paused"
ITEM_LIMIT = "item limit"
PAGE_LIMIT = "page limit"
CANCELLED = "cancelled"
RESTART = "restart"
GIVEN_UP = "given up"
TAKEN_OVER = "driver taken over"
CALLBACK_ERRORS = "too many callback errors"
CALLBACK_TIME = "callback time limit"
MEMORY = "memory limit"
START_FAILED = "start failed"
SILENCE = "no answer"
UNREACHABLE = "center unreachable"
REFUSED = "refused"

GOOD = frozenset({FINISHED, PAUSED, ITEM_LIMIT, PAGE_LIMIT, RESTART})
