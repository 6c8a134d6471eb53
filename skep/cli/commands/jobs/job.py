"""`skep job`: creates, shows, changes and runs jobs. Files are YAML or JSON with documents.

`lint` checks locally; otherwise the center checks, and stores a document completely or not at
all.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import click

from skep.cli.commands.crawl.spider_options import arguments_option
from skep.cli.terminal import command_outcome
from skep.cli.terminal.center_calls import ask, connected, keep_answers
from skep.cli.terminal.center_options import calls_center, center_group
from skep.cli.terminal.command_outcome import wait_option
from skep.cli.terminal.exit_codes import ExitCode
from skep.cli.terminal.filters import FilterCommand, ListQuery, filter_options, no_match, show_page
from skep.cli.terminal.line_wrapping import wide_option
from skep.cli.terminal.options import json_option
from skep.cli.terminal.output import age, show, show_exact, show_json, table
from skep.cli.terminal.wait_outcome import AllowDead, WaitOptions, allow_dead_option
from skep.embed.center_address import CenterAddress
from skep.runtime.clock import SystemClock

if TYPE_CHECKING:
    from skep.model.jobs.job import Job, KeptJob
    from skep.model.jobs.schedule import Schedule
    from skep.wire.api.jobs import JobList, JobPut, JobVerb
    from skep.wire.client.api import CenterApi

HEAD = ("JOB", "REVISION", "ON", "PRIORITY", "WHAT", "WHEN", "CUSTOMER", "CHANGED")
NO_JOBS = "no jobs yet; `skep job apply FILE` creates one"
HISTORY_HEAD = ("REVISION", "WHEN", "WHAT", "AUTHOR")

_files = click.argument(
    "files", nargs=-1, required=True, type=click.Path(path_type=Path, allow_dash=True)
)


@center_group("job")
def command() -> None:
    """Create, show, change and run jobs."""


@command.command("apply")
@_files
@click.option("--dry-run", is_flag=True, help="Show what would change; store nothing.")
@click.option("--no-test", is_flag=True, help="Do not test the code of generators first.")
@json_option
@calls_center
def apply(
    reach: CenterAddress, files: tuple[Path, ...], dry_run: bool, no_test: bool, as_json: bool
) -> int:
    """Check job documents and store them.

    FILES are YAML (several documents separated by `---`, or a list) or JSON; `-` is stdin.
    All documents are checked before the first one is sent. All errors are reported together,
    with file, job and path; invalid jobs are rejected, and then nothing is stored. Applying
    the same files again changes nothing. A document with a field `revision` is stored only
    if that is the current revision. The center runs new and changed code of generators for a
    moment in its sandbox, and rejects the document if that fails.
    """
    from skep.cli.commands.jobs.job_files import apply_files

    return asyncio.run(
        apply_files(reach, files, dry_run=dry_run, test=not no_test, as_json=as_json)
    )


@command.command("lint")
@_files
@json_option
def lint(files: tuple[Path, ...], as_json: bool) -> int:
    """Check job documents without a center.

    A center also checks that it has the downloader and the file of the spider.
    """
    from skep.cli.commands.jobs.job_files import lint_files

    return lint_files(files, as_json=as_json)


@command.command("ls", cls=FilterCommand)
@filter_options("jobs")
@click.option("--deleted", is_flag=True, help="Include deleted jobs.")
@wide_option
@json_option
@calls_center
def ls(reach: CenterAddress, query: ListQuery, deleted: bool, as_json: bool) -> None:
    """List jobs by name: all of them, or those that match a filter such as `label:eu`."""
    if query.given:
        found = ask(reach, lambda api: _page(api, query, deleted))
        if as_json:
            show_json(found)
            return
        text = jobs_table(found.items, no_match(query, found, NO_JOBS))
        show_page(text, found, len(found.items))
        return
    jobs = asyncio.run(_all(reach, deleted))
    show_json({"items": jobs}) if as_json else show(jobs_table(jobs, NO_JOBS))


def jobs_table(jobs: Sequence[KeptJob], otherwise: str) -> str:
    """As text; `otherwise` without jobs."""
    now = SystemClock().now()
    spare = ("CUSTOMER", "CHANGED", "REVISION", "PRIORITY")
    rows = [_row(kept, now) for kept in jobs]
    return table(HEAD, rows, spare=spare) if rows else otherwise


async def _page(api: CenterApi, query: ListQuery, deleted: bool) -> JobList:
    from skep.wire.api.jobs import JobPage

    return await query.find(api, api.jobs.list, JobPage, deleted=deleted)


async def _all(reach: CenterAddress, deleted: bool) -> list[KeptJob]:
    from skep.cli.commands.jobs.job_calls import all_jobs

    async with connected(reach) as client:
        return await all_jobs(client, deleted=deleted)


def _row(kept: KeptJob, now: float) -> tuple[object, ...]:
    job = kept.job
    state = "deleted" if kept.deleted else "yes" if job.enabled else "no"
    return (
        job.name,
        kept.revision,
        state,
        job.priority,
        _what(job),
        _when(job.schedule) if job.schedule else "-",
        job.customer or "-",
        age(now - kept.changed_at),
    )


def _when(schedule: Schedule) -> str:
    every = f"every {schedule.every} s" if schedule.every else ""
    after = f"after {', '.join(schedule.after)}" if schedule.after else ""
    return schedule.cron or every or after or "-"


def _what(job: Job) -> str:
    """What the job runs: a spider, an application, or a kind of downloader."""
    if job.app is not None:
        return job.app.image or job.app.package
    return job.spider.path if job.spider else job.downloader.kind


@command.command("show")
@click.argument("job")
@json_option
@calls_center
def show_one(reach: CenterAddress, job: str, as_json: bool) -> None:
    """Show a job, as a document that can be applied again, and its newest runs."""
    from skep.cli.commands.jobs.job_calls import document_of

    keep_answers()  # fields that this version does not know stay in the document
    view = ask(reach, lambda api: api.jobs.show(job))
    show_json(view) if as_json else show_exact(document_of(view))


@command.command("run")
@click.argument("job")
@click.option("--key", default="", help="Idempotency key: the same key returns the same run.")
@arguments_option
@click.option(
    "--label", "labels", multiple=True, metavar="NAME=VALUE", help="A label of the run; repeatable."
)
@click.option("--generator", default="", help="Run only this generator of the job.")
@click.option("--wait", is_flag=True, help="Wait until the run has ended.")
@click.option("--timeout", type=float, help="With --wait: stop waiting after N seconds.")
@allow_dead_option
@json_option
@calls_center
def run(
    reach: CenterAddress,
    job: str,
    key: str,
    arguments: tuple[str, ...],
    labels: tuple[str, ...],
    generator: str,
    wait: bool,
    timeout: float | None,
    allow_dead: AllowDead,
    as_json: bool,
) -> int:
    """Start a run of a job.

    Arguments given with -a apply only to this run and override those of the job. The spider
    and the code of the generators receive them.

    With --wait, the exit code is 0 if every request is done, 7 if some are dead, 1 if none is
    done or the run was stopped or paused, and 8 after --timeout. Ctrl-C ends the command; the
    run continues.
    """
    import msgspec

    from skep.cli.commands.jobs.job_calls import run_job
    from skep.cli.terminal.settings_options import split_pair
    from skep.wire.api.jobs import Starting

    given = dict(split_pair(text, "-a") for text in arguments)
    marked = dict(split_pair(text, "--label") for text in labels)
    told = [msgspec.json.encode(one).decode() if one else "" for one in (given, marked)]
    starting = Starting(generator, *told)
    waiting = WaitOptions(timeout, allow_dead) if wait else None
    return asyncio.run(run_job(reach, job, starting, key, waiting, as_json=as_json))


def _verb(name: JobVerb, text: str) -> None:
    @command.command(name, help=text, short_help=text)
    @click.argument("job")
    @wait_option
    @json_option
    @calls_center
    def act(reach: CenterAddress, job: str, wait: float, as_json: bool) -> int:
        from skep.wire.api.runs import Waiting

        answer = ask(reach, lambda api: api.jobs.change(job, name, Waiting(wait)))
        if as_json:
            show_json(answer)
            return command_outcome.exit_of(answer.reached, wait)
        for moved in answer.runs:
            show(f"{moved.id} is {moved.state}")
        if answer.started:
            show(f"{answer.started} started")
        show(command_outcome.in_words(answer.reached, wait))
        return command_outcome.exit_of(answer.reached, wait)


_verb("pause", "Pause the runs of a job: no more requests are leased, and its spiders end.")
_verb("resume", "Continue the paused runs of a job.")
_verb("stop", "Stop the runs of a job and cancel their open requests.")
_verb("restart", "Stop the runs of a job and start a new run.")


def _switch(name: Literal["enable", "disable"], text: str) -> None:
    @command.command(name, help=text, short_help=text)
    @click.argument("jobs", nargs=-1, required=True)
    @json_option
    @calls_center
    def switch(reach: CenterAddress, jobs: tuple[str, ...], as_json: bool) -> None:
        done = asyncio.run(_switched(reach, jobs, name))
        if as_json:
            show_json({"items": done})
        else:
            for answer in done:
                kept = f"{answer.job.name} (revision {answer.revision})"
                show(f"{answer.what} {kept}: it is {name}d")


async def _switched(
    reach: CenterAddress, jobs: Sequence[str], verb: Literal["enable", "disable"]
) -> list[JobPut]:
    from skep.cli.commands.jobs.job_calls import putting

    async with connected(reach) as client:
        switch = client.api.jobs.enable if verb == "enable" else client.api.jobs.disable
        return [await switch(job, putting()) for job in jobs]


_switch("enable", "Enable jobs: their schedules start runs again.")
_switch("disable", "Disable jobs: no run starts; active runs continue.")


@command.command("edit")
@click.argument("job")
@json_option
@calls_center
def edit(reach: CenterAddress, job: str, as_json: bool) -> int:
    """Change a job in your editor ($VISUAL or $EDITOR).

    The document is checked before it is stored. If it is not valid, or if the job was changed
    in the meantime, your text stays in a file and the command prints its name.
    """
    from skep.cli.commands.jobs.job_files import edit_job

    return asyncio.run(edit_job(reach, job, as_json=as_json))


@command.command("rm")
@click.argument("jobs", nargs=-1, required=True)
@json_option
@calls_center
def rm(reach: CenterAddress, jobs: tuple[str, ...], as_json: bool) -> None:
    """Delete jobs. Their history remains; applying them again restores them."""
    gone = asyncio.run(_deleted(reach, jobs))
    if as_json:
        show_json({"items": gone})
    else:
        for kept in gone:
            show(f"deleted {kept.job.name} (revision {kept.revision})")


async def _deleted(reach: CenterAddress, jobs: Sequence[str]) -> list[KeptJob]:
    from skep.cli.commands.jobs.job_calls import putting

    async with connected(reach) as client:
        return [await client.api.jobs.delete(job, putting()) for job in jobs]


@command.command("history")
@click.argument("job")
@click.option(
    "--limit", type=click.IntRange(1, 1000), default=100, help="Maximum number, newest first."
)
@wide_option
@json_option
@calls_center
def history(reach: CenterAddress, job: str, limit: int, as_json: bool) -> None:
    """Show the changes of a job, with author and time."""
    from skep.wire.api.jobs import RevisionPage

    answer = ask(reach, lambda api: api.jobs.revisions(job, RevisionPage(limit)))
    if as_json:
        show_json(answer)
        return
    now = SystemClock().now()
    lines = [
        (line.revision, f"{age(now - line.at)} ago", line.what, line.author)
        for line in answer.items
    ]
    show(table(HISTORY_HEAD, lines))


@command.command("diff")
@click.argument("job")
@click.argument("old", type=click.IntRange(0), required=False)
@click.argument("new", type=click.IntRange(1), required=False)
@json_option
@calls_center
def diff(reach: CenterAddress, job: str, old: int | None, new: int | None, as_json: bool) -> int:
    """Show what changed between two revisions.

    The default is the newest revision and the one before it; with one number, that revision
    and the newest.
    """
    from skep.wire.api.jobs import Between

    answer = ask(reach, lambda api: api.jobs.diff(job, Between(old, new)))
    if as_json:
        show_json(answer)
    elif answer.diff:
        show_exact(answer.diff)
    return ExitCode.OK
