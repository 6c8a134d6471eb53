"""Acts on many requests: first how many and which, then batch by batch, with progress.

Run by `skep failures` and `skep request`. Nothing is changed before somebody has seen the dry
run and said yes, or `--yes`.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

import click

from skep.cli.terminal.center_calls import connected
from skep.cli.terminal.options import Function, stacked
from skep.cli.terminal.output import say, show, show_json
from skep.embed.center_address import CenterAddress
from skep.runtime.clock import SystemClock

if TYPE_CHECKING:
    from skep.wire.api.failures import BulkAnswer
    from skep.wire.api.requests import CancelAnswer
    from skep.wire.client.api import CenterApi

    Outcome = BulkAnswer | CancelAnswer
A = TypeVar("A", "BulkAnswer", "CancelAnswer")

_AGES = {"s": 1, "min": 60, "m": 60, "h": 3600, "d": 86400, "w": 604800}


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


@dataclass(frozen=True, slots=True)
class Step:
    """One call of an act on many; the first is a dry run."""

    dry_run: bool = True
    after: int = 0
    #: Only what died before this moment; the answer to the dry run says which.
    before: float | None = None


async def act_on_all(
    reach: CenterAddress,
    act: Callable[[CenterApi, Step], Awaitable[A]],
    confirm: Callable[[Outcome], bool],
) -> A:
    """The sum of all answers; only the first, of the dry run, when nobody confirms."""
    from msgspec.structs import replace

    async with connected(reach) as client:
        plan = await act(client.api, Step())
        if not confirm(plan):
            return plan
        total = _begun(plan)
        after: int | None = 0
        while after is not None:
            answer = await act(client.api, Step(False, after, getattr(plan, "before", None)))
            changed, left = total.changed + answer.changed, total.left + answer.left
            total = _with_runs(replace(total, changed=changed, left=left), answer)
            _tell(total)
            after = answer.next
        return total


def _begun(plan: A) -> A:
    """What is added up: the dry run says how many fit and gives examples."""
    from msgspec.structs import replace

    from skep.wire.api.failures import BulkAnswer

    if isinstance(plan, BulkAnswer):
        return replace(plan, dry_run=False, resting=[])
    return replace(plan, dry_run=False)


def _with_runs(total: A, answer: A) -> A:
    """Of failures: runs that rest, and revisions of jobs that are followed."""
    from msgspec.structs import replace

    from skep.wire.api.failures import BulkAnswer

    if not isinstance(total, BulkAnswer) or not isinstance(answer, BulkAnswer):
        return total
    resting = sorted({*total.resting, *answer.resting})
    return replace(total, resting=resting, revisions={**total.revisions, **answer.revisions})


def _tell(total: Outcome) -> None:
    if sys.stderr.isatty():
        click.echo(f"\r{total.changed} of {total.matched}", nl=False, err=True)


def asked(act: str, dry_run: bool, yes: bool, as_json: bool) -> Callable[[Outcome], bool]:
    """Whether to go on after the dry run."""

    def confirm(plan: Outcome) -> bool:
        if dry_run or not plan.matched:
            return False
        if yes or as_json or not sys.stdin.isatty():
            return True
        for example in plan.examples:
            say(f"  {example.id}  {example.uri}")
        return click.confirm(f"{act} {plan.matched} requests?", err=True)

    return confirm


def show_outcome(act: str, done: Outcome, as_json: bool) -> None:
    """What was done, or would be."""
    if as_json:
        show_json(done)
        return
    if sys.stderr.isatty() and not done.dry_run:
        say("")
    if done.dry_run:
        show(f"{done.matched} requests would be touched by {act}; nothing was changed")
        for example in done.examples:
            show(f"  {example.id}  {example.uri}  {getattr(example, 'detail', '')}".rstrip())
        return
    show(f"{act}: {done.changed} requests, {done.left} left as they are")
    _show_runs(done)


def _show_runs(done: Outcome) -> None:
    from skep.wire.api.failures import BulkAnswer

    if not isinstance(done, BulkAnswer):
        return
    for run, revision in sorted(done.revisions.items()):
        show(f"run {run} follows revision {revision} of its job")
    for run in done.resting:
        show(f"run {run} rests; `skep runs continue {run}` hands them out")
