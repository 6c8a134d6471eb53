"""One run as text: the states of its requests, its results, why it ended. Pure.

Used by `skep runs show`; it makes no calls.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from skep.cli.terminal.output import age

if TYPE_CHECKING:
    from skep.model.ledger import Ledger
    from skep.wire.api.deliveries import DeliveryLine
    from skep.wire.api.placement import SeatLine
    from skep.wire.api.runs import RunView


def in_words(view: RunView, now: float, waits_for: str = "") -> str:
    """The answer of GET /api/v1/runs/{run} as text, and what the run waits for."""
    run, figures = view.run, view.figures
    since = run.changed_at or run.created_at
    lines = [
        f"run       {run.id} of job {run.job}, created {age(now - run.created_at)} ago",
        f"state     {run.state} for {age(now - since)}",
    ]
    if run.reason:
        lines.append(f"reason    {run.reason}")
    if waits_for:
        lines.append(f"waits     {waits_for}  (`skep why run:{run.id}`)")
    if view.chosen:
        lines.append(f"chosen    {_chosen(view.chosen)}  (`skep placement show {run.id}`)")
    lines += [
        *_requests(view.ledger),
        f"rate      {figures.rate:,.1f} answers/s over the last minute",
        f"bytes     {figures.received:,} received, {figures.sent:,} sent",
        f"statuses  {_counts(figures.statuses)}",
        f"failures  {_counts(figures.failures)}",
        f"agents    {_counts(figures.agents)}",
    ]
    lines += [f"sink      {_sink(line)}" for line in view.deliveries]
    if view.unaccounted:
        lines.append(f"UNACCOUNTED {view.unaccounted}")
    return "\n".join(lines)


def _requests(ledger: Ledger) -> list[str]:
    ended = {
        "success": ledger.done,
        "failed": ledger.dead,
        "cancelled": ledger.cancelled,
        "expired": ledger.expired,
    }
    left = {
        "waiting": ledger.waiting,
        "queued": ledger.queued,
        "leased": ledger.leased,
        "delayed": ledger.delayed,
    }
    counts = "".join(f", {count:,} {word}" for word, count in ended.items() if count)
    return [
        f"requests  {ledger.accepted:,} total, {ledger.open:,} left{counts}",
        f"left      {_counts(left)}",
    ]


def _chosen(seats: list[SeatLine]) -> str:
    return ", ".join(f"{seat.agent} ({seat.state})" for seat in seats)


def _sink(line: DeliveryLine) -> str:
    rejected = f", {line.rejected:,} rejected" if line.rejected else ""
    error = f"; last error: {line.error}" if line.error else ""
    counts = f"{line.delivered:,} delivered, {line.pending:,} pending{rejected}"
    return f"{line.place}: {line.state.replace('_', ' ')}, {counts}{error}"


def _counts(counts: dict[str, int]) -> str:
    return ", ".join(f"{name}: {n:,}" for name, n in counts.items() if n) or "none"
