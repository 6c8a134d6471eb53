"""The result of a session as one document, for programs. Pure.

Made once, when the spider has ended. Its fields are an interface: `skep run --json` prints it.
"""

from __future__ import annotations

from typing import Self

import msgspec

from skep.spiders.session.item_sinks import SinkProgress
from skep.spiders.session.plan import SessionResult


class Summary(msgspec.Struct):
    """Of this life of the run; the ledger beside it is that of the whole run."""

    run: str
    spider: str
    #: A word for programs, such as `finished`, and a sentence for people.
    reason: str
    sentence: str
    pages: int
    items: int
    requests: int
    #: Errors by class: those of downloads, and `callback` for those in the spider's code.
    errors: dict[str, int]
    #: Pages by HTTP status.
    statuses: dict[int, int]
    bytes: int
    seconds: float
    outputs: list[SinkProgress]

    @classmethod
    def of(cls, result: SessionResult) -> Self:
        ending, stats = result.ending, result.ending.stats
        errors = dict(sorted(stats.failures.items()))
        if stats.callback_errors:
            errors["callback"] = stats.callback_errors
        return cls(
            run=result.run,
            spider=result.spider,
            reason=ending.reason,
            sentence=ending.sentence,
            pages=stats.pages,
            items=stats.items,
            requests=stats.requests,
            errors=errors,
            statuses=stats.statuses,
            bytes=stats.bytes,
            seconds=round(stats.seconds, 3),
            outputs=result.outputs,
        )
