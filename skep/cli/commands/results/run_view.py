"""One run in words: where its requests are, what came of them, why it ended. Pure.

For `skep runs show`; it asks nobody.
"""

from __future__ import annotations

from typing import Any

from skep.cli.terminal.output import age

OPEN_STATES = ("waiting", "queued", "leased", "delayed")


def in_words(view: dict[str, Any], now: float) -> str:
    """The answer of GET /api/v1/runs/{run} for people."""
    run, ledger, figures = view["run"], view["ledger"], view["figures"]
    left = sum(ledger[state] for state in OPEN_STATES)
    since = run["changed_at"] or run["created_at"]
    lines = [
        f"run       {run['id']} of job {run['job']}, made {age(now - run['created_at'])} ago",
        f"state     {run['state']} for {age(now - since)}",
    ]
    if run["reason"]:
        lines.append(f"reason    {run['reason']}")
    if view.get("waits_for"):
        lines.append(f"waits     {view['waits_for']}  (`skep why run:{run['id']}`)")
    if view.get("chosen"):
        lines.append(f"chosen    {_chosen(view['chosen'])}  (`skep placement show {run['id']}`)")
    ended = {"success": "done", "failed": "dead", "cancelled": "cancelled", "expired": "expired"}
    ends = (f"{ledger[state]:,} {word}" for word, state in ended.items() if ledger[state])
    counts = "".join(f", {one}" for one in ends)
    lines += [
        f"requests  {ledger['accepted']:,} total, {left:,} left{counts}",
        f"left      {_counts({state: ledger[state] for state in OPEN_STATES})}",
        f"rate      {figures['rate']:,.1f} answers/s over the last minute",
        f"bytes     {figures['received']:,} received, {figures['sent']:,} sent",
        f"statuses  {_counts(figures['statuses'])}",
        f"failures  {_counts(figures['failures'])}",
        f"agents    {_counts(figures['agents'])}",
    ]
    lines += [f"sink      {_sink(line)}" for line in view.get("deliveries", ())]
    if view["unaccounted"]:
        lines.append(f"UNACCOUNTED {view['unaccounted']}")
    return "\n".join(lines)


def _chosen(seats: list[dict[str, Any]]) -> str:
    return ", ".join(f"{seat['agent']} ({seat['state']})" for seat in seats)


def _sink(line: dict[str, Any]) -> str:
    rejected = f", {line['rejected']:,} rejected" if line["rejected"] else ""
    error = f"; last error: {line['error']}" if line["error"] else ""
    counts = f"{line['delivered']:,} delivered, {line['pending']:,} pending{rejected}"
    return f"{line['place']}: {line['state'].replace('_', ' ')}, {counts}{error}"


def _counts(counts: dict[str, int]) -> str:
    return ", ".join(f"{name}: {n:,}" for name, n in counts.items() if n) or "none"
