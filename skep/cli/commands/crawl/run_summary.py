"""The last words of `skep run`: what came of it, for people on stderr, for programs as JSON.

Run once, when the spider has ended. It only tells: the exit code is chosen elsewhere.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Self

import msgspec

from skep.cli.commands.crawl.item_sinks import SinkProgress
from skep.cli.terminal.output import say, show_json

if TYPE_CHECKING:
    from skep.model.ledger import Ledger
    from skep.spiders.driving.stats import Ending


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
    def of(cls, run: str, spider: str, ending: Ending, outputs: Sequence[SinkProgress]) -> Self:
        stats = ending.stats
        errors = dict(sorted(stats.failures.items()))
        if stats.callback_errors:
            errors["callback"] = stats.callback_errors
        return cls(
            run=run,
            spider=spider,
            reason=ending.reason,
            sentence=ending.sentence,
            pages=stats.pages,
            items=stats.items,
            requests=stats.requests,
            errors=errors,
            statuses=stats.statuses,
            bytes=stats.bytes,
            seconds=round(stats.seconds, 3),
            outputs=list(outputs),
        )


def tell(summary: Summary, ledger: Ledger | None, *, as_json: bool) -> None:
    """People read stderr, so that stdout stays free for programs."""
    if as_json:
        show_json({**msgspec.to_builtins(summary), "ledger": ledger})
    for line in lines(summary, ledger):
        say(line)


def lines(summary: Summary, ledger: Ledger | None) -> list[str]:
    """The summary in words."""
    rate = summary.pages / summary.seconds if summary.seconds else 0.0
    errors = ", ".join(f"{count:,} {kind}" for kind, count in summary.errors.items())
    counts = f"{summary.pages:,} pages, {summary.items:,} items, {_size(summary.bytes)}"
    said = [
        f"{summary.reason}: {counts} in {summary.seconds:.1f} s ({rate:,.0f} pages/s)",
        f"errors   {errors or 'none'}",
    ]
    if ledger is not None:
        said.append(f"ledger   {ledger.line()}")
    for output in summary.outputs:
        refused = f", {output.refused:,} refused" if output.refused else ""
        said.append(f"items    {output.items:,} into {output.place}{refused}")
    if not summary.outputs:
        said.append(f"items    kept by the center: `skep data export {summary.run}`")
    return said


def _size(count: int) -> str:
    """Bytes in the unit that a person would use."""
    for unit, size in (("GB", 1e9), ("MB", 1e6), ("KB", 1e3)):
        if count >= size:
            return f"{count / size:.1f} {unit}"
    return f"{count} bytes"
