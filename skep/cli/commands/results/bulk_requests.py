"""Changes many requests: first a dry run, then batch by batch, with progress.

Used by `skep failures` and `skep request`. Nothing is changed before the user confirms the dry
run, or gives `--yes`.
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
        raise click.BadParameter(
            f"{text!r} is not a time; write 30min, 2h, 3d, or seconds since 1970"
        ) from None


def batch_options(everything: str) -> Callable[[Function], Function]:
    """Options of commands that change many requests: `everything`, `dry_run`, `yes`, `batch`."""
    return stacked(
        click.option("--all", "everything", is_flag=True, help=everything),
        click.option("--dry-run", is_flag=True, help="Show what would change; change nothing."),
        click.option("--yes", is_flag=True, help="Do not ask for confirmation."),
        click.option(
            "--batch", type=click.IntRange(1, 5000), default=1000, help="Requests per call."
        ),
    )


@dataclass(frozen=True, slots=True)
class Step:
    """One call of a bulk change; the first call is a dry run."""

    dry_run: bool = True
    after: int = 0
    #: Only requests that died before this moment, which comes from the dry run.
    before: float | None = None


async def act_on_all(
    reach: CenterAddress,
    act: Callable[[CenterApi, Step], Awaitable[A]],
    confirm: Callable[[Outcome], bool],
) -> A:
    """The sum of all answers; only the answer of the dry run if it is not confirmed."""
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
    """The start of the sum: the number of matches and the examples of the dry run."""
    from msgspec.structs import replace

    from skep.wire.api.failures import BulkAnswer

    if isinstance(plan, BulkAnswer):
        return replace(plan, dry_run=False, resting=[])
    return replace(plan, dry_run=False)


def _with_runs(total: A, answer: A) -> A:
    """For failures: add the paused runs, and the job revisions that runs follow."""
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
    """Decides whether to continue after the dry run."""

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
    """Print what was done, or what would be done."""
    if as_json:
        show_json(done)
        return
    if sys.stderr.isatty() and not done.dry_run:
        say("")
    if done.dry_run:
        show(f"{act} would change {done.matched} requests; nothing was changed")
        for example in done.examples:
            show(f"  {example.id}  {example.uri}  {getattr(example, 'detail', '')}".rstrip())
        return
    show(f"{act}: {done.changed} requests changed, {done.left} unchanged")
    _show_runs(done)


def _show_runs(done: Outcome) -> None:
    from skep.wire.api.failures import BulkAnswer

    if not isinstance(done, BulkAnswer):
        return
    for run, revision in sorted(done.revisions.items()):
        show(f"run {run} follows revision {revision} of its job")
    for run in done.resting:
        show(f"run {run} is not active; `skep runs continue {run}` sends the requests")
