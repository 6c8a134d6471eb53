"""`skep schedule`: shows the due times of jobs and their outcomes.

`preview` does not call a center: it evaluates a cron expression on this machine.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import click

from skep.cli.terminal.center_calls import ask
from skep.cli.terminal.center_options import calls_center
from skep.cli.terminal.filters import FilterCommand, ListQuery, filter_options, no_match, show_page
from skep.cli.terminal.line_wrapping import wide_option
from skep.cli.terminal.options import json_option
from skep.cli.terminal.output import show, show_json, table
from skep.cli.terminal.short_ids import Id
from skep.embed.center_address import CenterAddress
from skep.model.jobs.generator_progress import split_part
from skep.runtime.clock import SystemClock

if TYPE_CHECKING:
    from skep.model.jobs.fire import Fire
    from skep.model.jobs.schedule import Schedule
    from skep.wire.api.schedules import FireLines, ScheduleLine, ScheduleLines
    from skep.wire.client.api import CenterApi

LIST_HEAD = ("JOB", "WHEN", "ZONE", "OVERLAP", "NEXT")
FIRE_HEAD = ("DUE", "OUTCOME", "RUN", "CENTER", "REASON")


@click.group("schedule")
def command() -> None:
    """Show the schedules of jobs; test a cron expression."""


@command.command("ls", cls=FilterCommand)
@filter_options("schedules", 100)
@wide_option
@json_option
@calls_center
def list_all(reach: CenterAddress, query: ListQuery, as_json: bool) -> None:
    """List schedules with their next due times; with a filter, those that match it."""
    answer = ask(reach, lambda api: _schedules(api, query))
    if as_json:
        show_json(answer)
        return
    missing = no_match(query, answer, schedules_table([]))
    text = schedules_table(answer.items) if answer.items else missing
    show_page(text, answer, len(answer.items))


async def _schedules(api: CenterApi, query: ListQuery) -> ScheduleLines:
    from skep.wire.api.schedules import SchedulePage

    return await query.find(api, api.schedules.list, SchedulePage, count=1)


def schedules_table(lines: Sequence[ScheduleLine]) -> str:
    """As text."""
    if not lines:
        return (
            "no job has a schedule; add one to the document of a job and apply it: `skep job apply`"
        )
    return table(LIST_HEAD, [_row(line) for line in lines], spare=("OVERLAP", "ZONE"))


def _row(line: ScheduleLine) -> tuple[object, ...]:
    schedule = line.schedule
    following = line.next[0] if line.next else "-"
    return line.job, words_of(schedule), schedule.zone, schedule.overlap, following


def words_of(schedule: Schedule) -> str:
    """A short text: `17 3 * * *`, `every 900 s`, `after a, b`."""
    words = [schedule.cron] if schedule.cron else []
    if schedule.every:
        words.append(f"every {schedule.every} s")
    if schedule.after:
        words.append(f"after {', '.join(schedule.after)}")
    return "; ".join(words)


@command.command("next")
@click.argument("job")
@click.option("-n", "count", type=click.IntRange(1, 100), default=5, help="How many; 5.")
@json_option
@calls_center
def following(reach: CenterAddress, job: str, count: int, as_json: bool) -> None:
    """Show the next due times of a job."""
    from skep.wire.api.schedules import SchedulePage

    items = ask(reach, lambda api: api.schedules.list(SchedulePage(job, count))).items
    if not items:
        ask(reach, lambda api: api.jobs.show(job))  # raises UnknownJob if it does not exist
        raise click.ClickException(
            f"job {job} has no schedule, or is disabled; `skep job show {job}` shows its document"
        )
    show_json(items[0]) if as_json else show(
        "\n".join(items[0].next) or "no due times: the schedule does not depend on the clock"
    )


@command.command("fires", cls=FilterCommand)
@click.argument("job")
@filter_options("fires", 20, "-n")
@wide_option
@json_option
@calls_center
def fires(reach: CenterAddress, job: str, query: ListQuery, as_json: bool) -> None:
    """Show the outcomes of a job's due times, newest first; with a filter, those that match.

    For example: `skep schedule fires quotes state:missed,late since:7d`
    """
    answer = ask(reach, lambda api: _fires(api, job, query))
    if as_json:
        show_json(answer)
        return
    missing = no_match(query, answer, fires_table([]))
    show_page(fires_table(answer.items) if answer.items else missing, answer, len(answer.items))


async def _fires(api: CenterApi, job: str, query: ListQuery) -> FireLines:
    from skep.wire.api.schedules import FirePage

    name, generator = split_part(job)
    return await query.find(
        api, lambda page: api.schedules.fires(name, page), FirePage, generator=generator
    )


def fires_table(fires: Sequence[Fire]) -> str:
    """As text."""
    if not fires:
        return "no due time has passed yet"
    return table(FIRE_HEAD, [_fire(one) for one in fires], spare=("CENTER",))


def _fire(one: Fire) -> tuple[object, ...]:
    return _moment(one.due_at), one.state, Id(one.run or "-"), Id(one.center), one.reason


def _moment(instant: int) -> str:
    return datetime.fromtimestamp(instant, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


@command.command("preview")
@click.argument("cron")
@click.option("--tz", "zone", default="UTC", help="Time zone, such as Europe/Berlin. Default: UTC.")
@click.option("--exclude", multiple=True, help="Days without due times: sat, 12-25, 2026-12-24.")
@click.option("-n", "count", type=click.IntRange(1, 1000), default=5, help="How many; 5.")
@click.option("--from", "start", default="", help="First moment, in ISO 8601. Default: now.")
@json_option
def preview(
    cron: str, zone: str, exclude: tuple[str, ...], count: int, start: str, as_json: bool
) -> None:
    """Show the due times of a cron expression, without a center."""
    from skep.jobs.schedule.timetable import next_fires, schedule_problems
    from skep.model.jobs.schedule import Schedule

    schedule = Schedule(cron=cron, zone=zone, exclude=exclude)
    now = _instant(start)
    problems = schedule_problems(schedule, "", now)
    if problems:
        raise click.ClickException("\n".join(problem.message for problem in problems))
    due = next_fires(schedule, "", now, count)
    show_json({"cron": cron, "zone": zone, "next": due}) if as_json else show("\n".join(due))


def _instant(text: str) -> float:
    if not text:
        return SystemClock().now()
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as error:
        raise click.ClickException(
            f"--from: {text!r} is not a moment; write it as 2026-12-24T18:00"
        ) from error
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
