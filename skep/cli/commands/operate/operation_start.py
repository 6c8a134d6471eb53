"""Starts a bulk operation: dry run, confirmation, start, wait, and the file of an export.

Used by every command that changes many objects. Nothing is changed before the user confirms the
dry run, or gives `--yes`. The center works the operation off, whether or not the command waits.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import click

from skep.cli.commands.operate.operation_view import plan_in_words, watch
from skep.cli.terminal.output import say

if TYPE_CHECKING:
    from skep.wire.api.operations import OperationPlan, OperationView
    from skep.wire.client import CenterClient


@dataclass(frozen=True, slots=True)
class Asked:
    """What the user wants."""

    act: str
    resource: str
    filter: str
    everything: bool = False
    dry_run: bool = False
    yes: bool = False
    wait: bool = True
    rate: int = 0
    arguments: dict[str, Any] = field(default_factory=dict)


async def operate(client: CenterClient, asked: Asked) -> tuple[OperationPlan, OperationView | None]:
    """The dry run, and the operation unless nothing matched or only the dry run was wanted."""
    plan = await _plan(client, asked)
    if asked.dry_run or (not plan.matched and plan.exact):
        return plan, None
    _confirm(asked, plan)
    started = await _start(client, asked, plan.confirm)
    return plan, await watch(client, started.id) if asked.wait else started


def _confirm(asked: Asked, plan: OperationPlan) -> None:
    if asked.yes:
        return
    if not sys.stdin.isatty():
        raise click.UsageError(
            f"{asked.act} covers {plan.matched:,} {asked.resource}; give --yes to start it"
        )
    say(plan_in_words(asked.act, asked.resource, plan))
    click.confirm("start it?", abort=True, err=True)


async def _plan(client: CenterClient, asked: Asked) -> OperationPlan:
    answer = await client.api.operations.start(_body(asked))
    assert answer.plan is not None, "a dry run has a plan"  # noqa: S101 - for the type checker
    return answer.plan


async def _start(client: CenterClient, asked: Asked, confirm: str) -> OperationView:
    # The key makes a call that is repeated at another center start one operation.
    body = _body(asked, dry_run=False, confirm=confirm, key=uuid4().hex)
    answer = await client.api.operations.start(body)
    assert answer.operation is not None, "a start has an operation"  # noqa: S101 - as above
    return answer.operation


def _body(asked: Asked, **more: Any) -> Any:
    from skep.wire.api.operations import StartOperation

    return StartOperation(
        asked.resource,
        asked.act,
        asked.filter,
        asked.arguments,
        all=asked.everything,
        rate=asked.rate,
        **more,
    )


async def download(client: CenterClient, number: int, output: str) -> None:
    """Write the file of an export to a path, or to standard output (`-`). A file that was not read
    to its end is not left behind."""
    async with client.api.operations.file(number) as found:
        if output == "-":
            stream = sys.stdout.buffer
            async for piece in found.pieces:
                stream.write(piece)
            stream.flush()
            return
        target = Path(output)
        part = target.with_name(f"{target.name}.part")
        try:
            with part.open("wb") as file:
                async for piece in found.pieces:
                    file.write(piece)
            part.replace(target)
        finally:
            part.unlink(missing_ok=True)
