"""The calls of `skep job` to a center, and the text of the answers. Imported when it runs.

Each run is started with its own key, so that a repeated call does not start a second run.
"""

from __future__ import annotations

import getpass
import secrets
import sys
from typing import TYPE_CHECKING

from skep.cli.commands.results.wait_reasons import say_failures
from skep.cli.terminal.call_retries import with_retries
from skep.cli.terminal.center_calls import as_sent, connected
from skep.cli.terminal.exit_codes import ExitCode
from skep.cli.terminal.follow_run import detached, still_running
from skep.cli.terminal.output import age, say, show, show_json
from skep.cli.terminal.progress import Progress
from skep.cli.terminal.wait_outcome import WaitOptions, exit_of
from skep.embed.center_address import CenterAddress
from skep.model.jobs.app import APP_KIND, IMAGE_KIND
from skep.model.jobs.documents import write_document
from skep.runtime.clock import Clock, SystemClock
from skep.wire.api.jobs import JobPage, Putting, Starting

if TYPE_CHECKING:
    from skep.model.jobs.job import KeptJob
    from skep.wire.api.jobs import JobView
    from skep.wire.api.runs import RunView
    from skep.wire.client import CenterClient

PAGE = 500
APP_KINDS = {APP_KIND, IMAGE_KIND}
LOOK_EVERY = 0.3
#: States in which a run does nothing without a command.
STILL = {"finished", "cancelled", "paused", "failed"}


def putting() -> Putting:
    """A change of a job, with the name of the local user for the history."""
    try:
        return Putting(author=getpass.getuser())
    except (KeyError, OSError):  # a user without a name
        return Putting()


async def all_jobs(client: CenterClient, *, deleted: bool) -> list[KeptJob]:
    """All jobs, read page by page."""
    jobs: list[KeptJob] = []
    after: str | None = ""
    while after is not None:
        page = await client.api.jobs.list(JobPage(PAGE, after, deleted))
        jobs += page.items
        after = page.next
    return jobs


def document_of(view: JobView) -> str:
    """A job as YAML; its metadata is in comments. Fields of a newer center stay in the document
    if the command keeps answers."""
    kept, now = view.kept, SystemClock().now()
    changed = f"revision {kept.revision}, {age(now - kept.changed_at)} ago"
    lines = [f"# {changed}, by {kept.author}{', deleted' if kept.deleted else ''}"]
    for run in view.runs:
        what = run.outcome or ("open" if run.open else "ended")
        lines.append(f"# run {run.run}, {age(now - run.at)} ago: {what.splitlines()[0]}")
    if view.next:
        lines.append(f"# next: {', '.join(view.next)}")
    return "\n".join([*lines, write_document(as_sent(kept.job)).rstrip("\n")])


async def run_job(
    reach: CenterAddress,
    job: str,
    starting: Starting,
    key: str,
    waiting: WaitOptions | None,
    *,
    as_json: bool,
) -> int:
    """Start a run, wait for its end if `waiting` is given, and return the exit code."""
    # If a center dies during the call, the next one is called; the key prevents a second run.
    key = key or f"skep {secrets.token_hex(8)}"
    async with connected(reach) as client:
        started = await client.api.jobs.run(job, starting, key)
        if waiting is None:
            show_json(started) if as_json else show(started.run)
            return ExitCode.OK
        say(f"run {started.run}")
        view = await _ended(client, started.run, waiting.seconds, SystemClock())
        if view is not None:
            await say_failures(client, started.run, view.ledger.dead)
    if view is None:
        say(f"timed out; {still_running(started.run)}")
        show_json(started) if as_json else show(started.run)
        return ExitCode.TIMED_OUT
    _show_end(started.run, view, as_json)
    if view.run.state != "finished":
        return ExitCode.FAILED
    return exit_of(view.ledger, waiting.allow, finished=True)


async def _ended(
    client: CenterClient, run: str, seconds: float | None, clock: Clock
) -> RunView | None:
    deadline = None if seconds is None else clock.monotonic() + seconds
    progress = Progress(sys.stderr, clock)
    try:
        with detached(run):
            while True:
                view = await with_retries(lambda: client.api.runs.show(run), clock)
                _draw(progress, view)
                if view.run.state in STILL:
                    return view
                if deadline is not None and clock.monotonic() > deadline:
                    return None
                await clock.sleep(LOOK_EVERY)
    finally:
        progress.end()


def _draw(progress: Progress, view: RunView) -> None:
    """Draws nothing for an application, which has instances instead of requests."""
    ledger = view.ledger
    if ledger.accepted:
        progress.update(ledger.accepted - ledger.open, ledger.accepted, ledger.dead)


def _show_end(run: str, view: RunView, as_json: bool) -> None:
    if as_json:
        show_json(view)
        return
    reason = f" ({view.run.reason})" if view.run.reason else ""
    # An application has instances instead of requests: `skep app ls` shows them.
    app = view.run.settings.downloader in APP_KINDS
    counts = "" if app else f": {view.ledger.done} done, {view.ledger.dead} dead"
    show(f"{run} {view.run.state}{reason}{counts}")
