"""`skep storage`: room on the disks, what fills it, what was deleted and what will be.

It asks; only `--clean` lets the center delete, and only what it would delete by itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from skep.cli.terminal.center_calls import ask
from skep.cli.terminal.center_options import calls_center
from skep.cli.terminal.line_wrapping import wide_option
from skep.cli.terminal.options import json_option
from skep.cli.terminal.output import age, colored, show, show_json, table
from skep.cli.terminal.short_ids import Id
from skep.embed.center_address import CenterAddress
from skep.runtime.clock import SystemClock

if TYPE_CHECKING:
    from skep.model.retention import Deleted
    from skep.wire.api.storage import Kept, NoticeLine, Notices, Plan, Storage

PLANNED = 20
_UNITS = ((2**40, "TiB"), (2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB"))


@click.command("storage")
@click.option("--plan", is_flag=True, help="Show what retention would delete now; delete nothing.")
@click.option("--clean", is_flag=True, help="Delete it now instead of later.")
@click.option("--notices", is_flag=True, help="Show the outbox of notices.")
@wide_option
@json_option
@calls_center
def command(reach: CenterAddress, plan: bool, clean: bool, notices: bool, as_json: bool) -> None:
    """Show stored data, past and planned deletions, and notices."""
    if sum((plan, clean, notices)) > 1:
        raise click.UsageError("use only one of --plan, --clean, --notices")
    if clean:
        deleted = ask(reach, lambda api: api.storage.clean())
        show_json(deleted) if as_json else show(cleaned_text(deleted))
    elif plan:
        planned = ask(reach, lambda api: api.storage.plan())
        show_json(planned) if as_json else show(plan_text(planned))
    elif notices:
        outbox = ask(reach, lambda api: api.storage.notices())
        show_json(outbox) if as_json else show(notices_text(outbox))
    else:
        view = ask(reach, lambda api: api.storage.show())
        show_json(view) if as_json else show(storage_text(view))


def size(count: float) -> str:
    """Bytes in the unit that a person would use."""
    for unit, name in _UNITS:
        if count >= unit:
            return f"{count / unit:.1f} {name}"
    return f"{count:.0f} B"


def storage_text(view: Storage) -> str:
    """As text."""
    now = SystemClock().now()
    state = colored(view.trouble, "red") if view.trouble else "room enough"
    disks = [f"{disk.folder}: {size(disk.free)} free" for disk in view.disks]
    archive = f"{view.archive}: {view.segments} segments, {size(view.archive_bytes)}"
    rows = [_kept(kept) for kept in view.kept]
    parts = ["\n".join([state, *disks, archive])]
    parts.append(table(("KEPT", "BYTES", "FOR", "UP TO"), rows))
    if view.deleted:
        gone = [(one.kind, one.runs, one.n, age(now - one.last_at)) for one in view.deleted]
        parts.append(table(("DELETED", "RUNS", "ROWS OR BYTES", "LAST"), gone))
    return "\n\n".join(parts)


def _kept(kept: Kept) -> tuple[object, ...]:
    lasting = age(kept.age_limit) if kept.age_limit else "ever"
    limit = size(kept.bytes_limit) if kept.bytes_limit else "any"
    return kept.kind, size(kept.bytes), lasting, limit


def plan_text(view: Plan) -> str:
    """As text."""
    if not view.items:
        return "nothing is to be deleted"
    now = SystemClock().now()
    rows = [
        (Id(one.run), one.kind, size(one.volume), age(now - one.ended_at), one.why)
        for one in view.items[:PLANNED]
    ]
    head = ", ".join(f"{kind} {size(count)}" for kind, count in view.bytes.items())
    more = len(view.items) - PLANNED
    lines = [f"of {view.runs} runs would be deleted: {head}"]
    lines.append(table(("RUN", "KIND", "BYTES", "ENDED", "WHY"), rows))
    return "\n".join([*lines, f"and {more} more"] if more > 0 else lines)


def cleaned_text(deleted: Deleted) -> str:
    """As text."""
    return (
        f"deleted of {deleted.runs} runs: {size(deleted.bodies)} of bodies, {deleted.logs} log "
        f"rows, {deleted.rows} requests; {deleted.segments} segments "
        f"({size(deleted.segment_bytes)}) are gone from the archive"
    )


def notices_text(view: Notices) -> str:
    """As text."""
    if not view.items:
        return "no notices"
    now = SystemClock().now()
    rows = [_notice(one, now) for one in view.items]
    return table(("AGE", "RUN", "BY", "TO", "STATE", "TRIES", "ERROR"), rows, spare=("TRIES",))


def _notice(one: NoticeLine, now: float) -> tuple[object, ...]:
    made = age(now - one.created_at)
    return made, Id(one.run), one.kind, one.target, one.state, one.tries, one.error
