"""Changes many requests by a bulk operation, with the options of older commands.

Used by `skep failures` and `skep request`: their options become a filter. Nothing is changed
before the user confirms the dry run, or gives `--yes`.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click

from skep.cli.commands.operate.operation_start import Asked, operate
from skep.cli.commands.operate.operation_view import exit_of
from skep.cli.terminal.center_calls import connected
from skep.cli.terminal.options import Function, stacked
from skep.cli.terminal.output import harmless, show, show_json
from skep.embed.center_address import CenterAddress
from skep.model.filter.syntax import quoted
from skep.runtime.clock import SystemClock

if TYPE_CHECKING:
    from skep.wire.api.operations import OperationPlan, OperationView

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
    """Options of commands that change many requests: `everything`, `dry_run`, `yes`, `wait`, and
    `batch`, which older scripts give."""
    return stacked(
        click.option("--all", "everything", is_flag=True, help=everything),
        click.option("--dry-run", is_flag=True, help="Show what would change; change nothing."),
        click.option("--yes", is_flag=True, help="Do not ask for confirmation."),
        click.option("--wait/--no-wait", default=True, help="Wait until the operation has ended."),
        click.option(
            "--batch",
            type=click.IntRange(1, 5000),
            default=1000,
            hidden=True,
            expose_value=False,
            help="Has no effect: the center chooses the size of a batch.",
        ),
    )


_FOLLOWS = re.compile(r"run (\S+) follows revision (\d+) of its job")
_RESTS = re.compile(r"run (\S+) is not active;")


def filter_text(given: Mapping[str, Any], fields: Mapping[str, str]) -> str:
    """Options as a filter: the option's name -> the field with its operator."""
    terms = []
    for name, value in given.items():
        text = value if isinstance(value, str) else _number(value)
        # In quotes, no sign has a special meaning: the options never had one.
        terms.append(f"{fields[name]}{quoted(text) if isinstance(value, str) else text}")
    return " ".join(terms)


def _number(value: float) -> str:
    if isinstance(value, int):
        return str(value)
    return datetime.fromtimestamp(value, UTC).isoformat(timespec="microseconds")


async def change(reach: CenterAddress, asked: Asked, as_json: bool) -> int:
    """Do it and show the outcome; returns the exit code."""
    # A script that is not asked for a confirmation has never needed `--yes` here.
    async with connected(reach) as client:
        plan, ended = await operate(client, asked)
    if as_json:
        show_json(_as_before(plan, ended))
    elif ended is None:
        _show_plan(asked.act, plan)
    else:
        _show_outcome(asked.act, ended)
    return 0 if ended is None else exit_of(ended)


def without_question(yes: bool, as_json: bool) -> bool:
    """Whether a confirmation is not asked for."""
    return yes or as_json or not sys.stdin.isatty()


def _show_plan(act: str, plan: OperationPlan) -> None:
    count = f"{plan.matched}" if plan.exact else f"{plan.matched} or more"
    show(f"{act} would change {count} requests; nothing was changed")
    for example in plan.examples:
        show(harmless(f"  {example.name}  {example.text}".rstrip()))


def _show_outcome(act: str, one: OperationView) -> None:
    if not one.ended_at:
        show(f"{act}: operation {one.id} has begun; `skep op watch {one.id}` waits for it")
        return
    done, left = _counts(one)
    show(f"{act}: {done} requests changed, {left} unchanged")
    for result in one.results:
        if result.outcome != "done":
            show(harmless(f"  {result.count} {result.outcome}: {result.reason}"))
    for note in one.notes:
        show(harmless(note))
    if one.error:
        show(harmless(f"error: {one.error}"))


def _counts(one: OperationView) -> tuple[int, int]:
    done = sum(result.count for result in one.results if result.outcome == "done")
    return done, one.matched - done


def _as_before(plan: OperationPlan, one: OperationView | None) -> dict[str, Any]:
    """The fields that these commands have always shown, and the operation."""
    done, left = (0, 0) if one is None else _counts(one)
    notes = [] if one is None else one.notes
    follows = [found for note in notes if (found := _FOLLOWS.match(note))]
    return {
        "dry_run": one is None,
        "matched": plan.matched if one is None or not one.ended_at else one.matched,
        "changed": done,
        "left": left,
        "resting": [found[1] for note in notes if (found := _RESTS.match(note))],
        "examples": [{"id": int(one.name), "uri": one.text} for one in plan.examples],
        "next": None,
        "revisions": {found[1]: int(found[2]) for found in follows},
        "operation": one,
    }
