"""Acts on many requests: first how many and which, then batch by batch, with progress.

Run by `skep failures` and `skep request`. Nothing is changed before somebody has seen the dry
run and said yes, or `--yes`.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from typing import Any

import click

from skep.cli.terminal.options import Function, stacked
from skep.cli.terminal.output import say, show, show_json
from skep.embed.center_address import CenterAddress
from skep.runtime.clock import SystemClock

_AGES = {"s": 1, "min": 60, "m": 60, "h": 3600, "d": 86400, "w": 604800}
CALL_SECONDS = 60.0


def moment(_context: object, _option: object, text: str | None) -> float | None:
    """`2h` ago, or seconds since the epoch."""
    if text is None:
        return None
    found = re.fullmatch(r"(\d+(?:\.\d+)?) ?(s|min|m|h|d|w)", text)
    if found:
        return SystemClock().now() - float(found[1]) * _AGES[found[2]]
    try:
        return float(text)
    except ValueError:
        raise click.BadParameter(f"{text!r}: say 30min, 2h, 3d, or seconds since 1970") from None


def batch_options(everything: str) -> Callable[[Function], Function]:
    """Options of every act on many: `everything`, `dry_run`, `yes`, `batch`."""
    return stacked(
        click.option("--all", "everything", is_flag=True, help=everything),
        click.option("--dry-run", is_flag=True, help="Say how many and which; change nothing."),
        click.option("--yes", is_flag=True, help="Do not ask."),
        click.option("--batch", type=click.IntRange(1, 5000), default=1000, help="At a time."),
    )


async def act_on_all(
    reach: CenterAddress, path: str, body: dict[str, Any], confirm: Callable[[dict[str, Any]], bool]
) -> dict[str, Any]:
    """The sum of all answers; only the first, of the dry run, when nobody confirms."""
    async with reach.client() as client:
        plan: dict[str, Any] = await client.call("POST", path, body, dict, seconds=CALL_SECONDS)
        if not confirm(plan):
            return plan
        moment = {"before": plan["before"]} if "before" in plan else {}
        total = {**plan, "dry_run": False}
        order, resting = {**body, **moment, "dry_run": False}, set()
        while True:
            answer = await client.call("POST", path, order, dict, seconds=CALL_SECONDS)
            total["changed"] += answer["changed"]
            total["left"] += answer["left"]
            resting.update(answer.get("resting", ()))
            if answer.get("revisions"):
                total["revisions"] = {**total.get("revisions", {}), **answer["revisions"]}
            _tell(total)
            if answer["next"] is None:
                break
            order["after"] = answer["next"]
        if "resting" in total:
            total["resting"] = sorted(resting)
        return total


def _tell(total: dict[str, Any]) -> None:
    if sys.stderr.isatty():
        click.echo(f"\r{total['changed']} of {total['matched']}", nl=False, err=True)


def asked(act: str, dry_run: bool, yes: bool, as_json: bool) -> Callable[[dict[str, Any]], bool]:
    """Whether to go on after the dry run."""

    def confirm(plan: dict[str, Any]) -> bool:
        if dry_run or not plan["matched"]:
            return False
        if yes or as_json or not sys.stdin.isatty():
            return True
        for example in plan["examples"]:
            say(f"  {example['id']}  {example['uri']}")
        return click.confirm(f"{act} {plan['matched']} requests?", err=True)

    return confirm


def show_outcome(act: str, done: dict[str, Any], as_json: bool) -> None:
    """What was done, or would be."""
    if as_json:
        show_json(done)
        return
    if sys.stderr.isatty() and not done["dry_run"]:
        say("")
    if done["dry_run"]:
        show(f"{done['matched']} requests would be touched by {act}; nothing was changed")
        for example in done["examples"]:
            show(f"  {example['id']}  {example['uri']}  {example.get('detail', '')}".rstrip())
        return
    show(f"{act}: {done['changed']} requests, {done['left']} left as they are")
    for run, revision in sorted(done.get("revisions", {}).items()):
        show(f"run {run} follows revision {revision} of its job")
    for run in done.get("resting", ()):
        show(f"run {run} rests; `skep runs continue {run}` hands them out")
