"""`skep storage`: shows free space, stored data, and past and planned deletions.

It only reads; with `--clean` the center deletes what retention would delete later.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from skep.cli.terminal.center_calls import ask
from skep.cli.terminal.center_options import calls_center
from skep.cli.terminal.filters import FilterCommand, ListQuery, filter_options, no_match, show_page
from skep.cli.terminal.line_wrapping import wide_option
from skep.cli.terminal.options import json_option
from skep.cli.terminal.output import age, colored, show, show_json, table
from skep.cli.terminal.short_ids import Id
from skep.embed.center_address import CenterAddress
from skep.runtime.clock import SystemClock

if TYPE_CHECKING:
    from skep.model.retention import Deleted
    from skep.wire.api.storage import Kept, NoticeLine, Notices, Plan, Storage
    from skep.wire.client.api import CenterApi

PLANNED = 20
_UNITS = ((2**40, "TiB"), (2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB"))


@click.command("storage", cls=FilterCommand)
@click.option("--plan", is_flag=True, help="Show what retention would delete now; delete nothing.")
@click.option("--clean", is_flag=True, help="Delete it now instead of later.")
@click.option("--notices", is_flag=True, help="Show the outbox of notices.")
@filter_options("notices", 50)
@wide_option
@json_option
@calls_center
def command(
    reach: CenterAddress, plan: bool, clean: bool, notices: bool, query: ListQuery, as_json: bool
) -> None:
    """Show stored data, past and planned deletions, and notices.

    A filter selects notices: `skep storage --notices state:given-up since:1d`.
    """
    if sum((plan, clean, notices)) > 1:
        raise click.UsageError("use only one of --plan, --clean, --notices")
    if query.given and not notices:
        raise click.UsageError("a filter selects notices; add --notices to show them")
    if clean:
        deleted = ask(reach, lambda api: api.storage.clean())
        show_json(deleted) if as_json else show(cleaned_text(deleted))
    elif plan:
        planned = ask(reach, lambda api: api.storage.plan())
        show_json(planned) if as_json else show(plan_text(planned))
    elif notices:
        outbox = ask(reach, lambda api: _notices(api, query))
        show_json(outbox) if as_json else _show_notices(outbox, query)
    else:
        view = ask(reach, lambda api: api.storage.show())
        show_json(view) if as_json else show(storage_text(view))


async def _notices(api: CenterApi, query: ListQuery) -> Notices:
    from skep.wire.api.storage import WhichNotices

    return await query.find(api, api.storage.notices, WhichNotices)


def _show_notices(outbox: Notices, query: ListQuery) -> None:
    missing = no_match(query, outbox, notices_text(outbox))
    text = notices_text(outbox) if outbox.items else missing
    show_page(text, outbox, len(outbox.items))


def size(count: float) -> str:
    """Bytes in a suitable unit."""
    for unit, name in _UNITS:
        if count >= unit:
            return f"{count / unit:.1f} {name}"
    return f"{count:.0f} B"


def storage_text(view: Storage) -> str:
    """The stored data as text."""
    now = SystemClock().now()
    state = colored(view.trouble, "red") if view.trouble else "enough free space"
    disks = [f"{disk.folder}: {size(disk.free)} free" for disk in view.disks]
    archive = f"{view.archive}: {view.segments} segments, {size(view.archive_bytes)}"
    logs = f"log lines: {size(view.log_bytes)} of {size(view.log_limit)}"
    rows = [_kept(kept) for kept in view.kept]
    parts = ["\n".join([state, *disks, archive, logs])]
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
    """The planned deletions as text."""
    if not view.items:
        return "nothing to delete"
    now = SystemClock().now()
    rows = [
        (Id(one.run), one.kind, size(one.volume), age(now - one.ended_at), one.why)
        for one in view.items[:PLANNED]
    ]
    head = ", ".join(f"{kind} {size(count)}" for kind, count in view.bytes.items())
    more = len(view.items) - PLANNED
    lines = [f"expired data of {view.runs} runs: {head}"]
    lines.append(table(("RUN", "KIND", "BYTES", "ENDED", "WHY"), rows))
    return "\n".join([*lines, f"and {more} more"] if more > 0 else lines)


def cleaned_text(deleted: Deleted) -> str:
    """The deletions as text."""
    return (
        f"deleted from {deleted.runs} runs: {size(deleted.bodies)} of bodies, {deleted.logs} log "
        f"rows, {deleted.rows} requests; deleted {deleted.segments} segments "
        f"({size(deleted.segment_bytes)}) of the archive"
    )


def notices_text(view: Notices) -> str:
    """The notices as text."""
    if not view.items:
        return "no notices yet; `notices` in the document of a job says who gets them"
    now = SystemClock().now()
    rows = [_notice(one, now) for one in view.items]
    return table(("AGE", "RUN", "BY", "TO", "STATE", "TRIES", "ERROR"), rows, spare=("TRIES",))


def _notice(one: NoticeLine, now: float) -> tuple[object, ...]:
    made = age(now - one.created_at)
    return made, Id(one.run), one.kind, one.target, one.state, one.tries, one.error
