"""What `skep job` asks of a center, and how its answers read. Imported when it runs.

A run is started under a key of its own, so a call that is made again starts no second one.
"""

from __future__ import annotations

import getpass
import secrets
import sys
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlencode

import msgspec

from skep.cli.commands.results.wait_reasons import say_failures
from skep.cli.terminal.call_retries import with_retries
from skep.cli.terminal.center_options import run_path
from skep.cli.terminal.exit_codes import ExitCode
from skep.cli.terminal.follow_run import detached, still_running
from skep.cli.terminal.output import age, say, show, show_json
from skep.cli.terminal.progress import Progress
from skep.cli.terminal.wait_outcome import WaitOptions, exit_of
from skep.embed.center_address import CenterAddress
from skep.jobs.definitions.documents import write_document
from skep.model.jobs.app import APP_KIND, IMAGE_KIND
from skep.model.ledger import Ledger
from skep.runtime.clock import Clock, SystemClock

if TYPE_CHECKING:
    from skep.wire.client import CenterClient

PAGE = 500
APP_KINDS = {APP_KIND, IMAGE_KIND}
LOOK_EVERY = 0.3
#: A run in one of these does nothing more by itself.
STILL = {"finished", "cancelled", "paused", "failed"}


def job_path(job: str, verb: str = "") -> str:
    """The API's path of a job, or of something that can be done to it."""
    return f"/api/v1/jobs/{quote(job, safe='')}" + (f"/{verb}" if verb else "")


def run_query(generator: str, arguments: dict[str, str]) -> str:
    """What the call that starts a run says about it; "" when it says nothing."""
    given = {"generator": generator} if generator else {}
    if arguments:
        given["arguments"] = msgspec.json.encode(arguments).decode()
    return urlencode(given)


def author() -> str:
    """Who sits here, for the history."""
    try:
        return quote(getpass.getuser())
    except (KeyError, OSError):  # a user without a name
        return ""


def delete_path(job: str) -> str:
    return f"{job_path(job)}?author={author()}"


async def all_jobs(client: CenterClient, *, deleted: bool) -> list[dict[str, Any]]:
    """Every job, page by page."""
    jobs: list[dict[str, Any]] = []
    after: str | None = ""
    while after is not None:
        asked = f"limit={PAGE}&after={quote(after)}&deleted={str(deleted).lower()}"
        page = await client.call("GET", f"/api/v1/jobs?{asked}", None, dict)
        jobs += page["items"]
        after = page["next"]
    return jobs


def document_of(view: dict[str, Any]) -> str:
    """A job as YAML; everything about it that is not part of it stands in comments."""
    kept, now = view["kept"], SystemClock().now()
    changed = f"revision {kept['revision']}, {age(now - kept['changed_at'])} ago"
    lines = [f"# {changed}, by {kept['author']}{', deleted' if kept.get('deleted') else ''}"]
    for run in view["runs"]:
        what = run.get("outcome") or ("open" if run.get("open", True) else "ended")
        lines.append(f"# run {run['run']}, {age(now - run['at'])} ago: {what.splitlines()[0]}")
    if view["next"]:
        lines.append(f"# next: {', '.join(view['next'])}")
    return "\n".join([*lines, write_document(kept["job"]).rstrip("\n")])


async def run_job(
    reach: CenterAddress, path: str, key: str, waiting: WaitOptions | None, *, as_json: bool
) -> int:
    """Start a run, and with `waiting` stay until it has ended; the exit code."""
    # A call that met a dying center is made again at the next: with a key it is one run.
    headers = {"Idempotency-Key": key or f"skep {secrets.token_hex(8)}"}
    async with reach.client() as client:
        seconds = await client.start_seconds()
        started = await client.call("POST", path, None, dict, headers=headers, seconds=seconds)
        if waiting is None:
            show_json(started) if as_json else show(started["run"])
            return ExitCode.OK
        say(f"run {started['run']}")
        view = await _ended(client, started["run"], waiting.seconds, SystemClock())
        if view is not None:
            await say_failures(client, started["run"], view["ledger"]["dead"])
    if view is None:
        say(f"the time to wait was over; {still_running(started['run'])}")
        show_json(started) if as_json else show(started["run"])
        return ExitCode.TIMED_OUT
    _show_end(started["run"], view, as_json)
    if view["run"]["state"] != "finished":
        return ExitCode.FAILED
    ledger = msgspec.convert(view["ledger"], Ledger)
    return exit_of(ledger, waiting.allow, finished=True)


async def _ended(
    client: CenterClient, run: str, seconds: float | None, clock: Clock
) -> dict[str, Any] | None:
    deadline = None if seconds is None else clock.monotonic() + seconds
    progress = Progress(sys.stderr, clock)
    try:
        with detached(run):
            while True:
                view: dict[str, Any] = await with_retries(
                    lambda: client.call("GET", run_path(run), None, dict), clock
                )
                _draw(progress, view)
                if view["run"]["state"] in STILL:
                    return view
                if deadline is not None and clock.monotonic() > deadline:
                    return None
                await clock.sleep(LOOK_EVERY)
    finally:
        progress.end()


def _draw(progress: Progress, view: dict[str, Any]) -> None:
    """An application has instances and no requests, and so no progress."""
    ledger = msgspec.convert(view["ledger"], Ledger)
    if ledger.accepted:
        progress.update(ledger.accepted - ledger.open, ledger.accepted, ledger.dead)


def _show_end(run: str, view: dict[str, Any], as_json: bool) -> None:
    if as_json:
        show_json(view)
        return
    state, ledger = view["run"]["state"], view["ledger"]
    reason = f" ({view['run']['reason']})" if view["run"].get("reason") else ""
    # An application has instances and no requests: `skep app ls` shows them.
    app = view["run"]["settings"].get("downloader") in APP_KINDS
    counts = "" if app else f": {ledger['done']} done, {ledger['dead']} dead"
    show(f"{run} {state}{reason}{counts}")
