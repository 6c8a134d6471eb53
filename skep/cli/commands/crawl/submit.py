"""`skep submit`: adds requests to a run in batches, from a file or stdin.

A batch is stored completely or not at all. Sending it again is safe: equal requests of a run are
stored once.
"""

from __future__ import annotations

import asyncio
import sys
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING, Any

import click

from skep.cli.terminal.center_calls import connected
from skep.cli.terminal.center_options import calls_center
from skep.cli.terminal.exit_codes import ExitCode
from skep.cli.terminal.options import json_option
from skep.cli.terminal.output import say, show, show_json
from skep.cli.terminal.wait_outcome import AllowDead, WaitOptions, allow_dead_option, exit_of
from skep.embed.center_address import CenterAddress
from skep.errors import SkepError

if TYPE_CHECKING:
    from skep.cli.terminal.progress import Progress
    from skep.model.ledger import Ledger
    from skep.model.run import AskedSettings
    from skep.wire.client import CenterClient


@dataclass(slots=True)
class Sent:
    """Counts of the input that was sent."""

    run: str
    accepted: int = 0
    known: int = 0
    batches: int = 0


@click.command("submit")
@click.argument("run")
@click.argument("source", type=click.File("rb"), metavar="FILE")
@click.option("--new", is_flag=True, help="Open the run first, if it does not exist.")
@click.option("--priority", type=click.IntRange(-1, 5), help="With --new: -1 (first) to 5 (last).")
@click.option(
    "--retries", type=click.IntRange(0, 1000), help="With --new: retries after a failure."
)
@click.option(
    "--time-limit", type=click.FloatRange(0, min_open=True), help="With --new: seconds per request."
)
@click.option(
    "--set",
    "chosen",
    multiple=True,
    metavar="NAME=VALUE",
    help="With --new: a setting of the run, such as block_size=50; repeatable.",
)
@click.option("--wait", is_flag=True, help="Wait until every request of the run has ended.")
@click.option(
    "--finish", is_flag=True, help="Wait, then finish the run: it accepts no more requests."
)
@click.option("--timeout", type=float, help="With --wait: stop waiting after N seconds.")
@allow_dead_option
@json_option
@calls_center
def command(
    reach: CenterAddress,
    run: str,
    source: IO[bytes],
    new: bool,
    priority: int | None,
    retries: int | None,
    time_limit: float | None,
    chosen: tuple[str, ...],
    wait: bool,
    finish: bool,
    timeout: float | None,
    allow_dead: AllowDead,
    as_json: bool,
) -> int:
    """Add requests to a run.

    FILE has one URL per line, or one JSON object per line with `uri` and other fields of a
    request; `-` reads stdin. Lines are sent in batches of 5,000. If a line is not valid, the
    error names it and its batch is not stored. Sending the same lines again changes nothing.
    A run accepts requests until you finish it with --finish or `skep runs finish`.

    With --wait, the exit code is 0 if every request is done, 7 if some are dead, 1 if none is
    done, and 8 after --timeout.
    """
    given = {"priority": priority, "retries": retries, "time_limit": time_limit}
    settings = _run_settings(given, chosen)
    if settings is not None and not new:
        raise click.UsageError("settings of a run can be set only when it is opened; add --new")
    waiting = WaitOptions(timeout, allow_dead, finish) if wait or finish else None
    return asyncio.run(_submit(reach, Sent(run), source, new, settings, waiting, as_json))


def _run_settings(given: dict[str, Any], chosen: tuple[str, ...]) -> AskedSettings | None:
    """None if no setting was given."""
    import msgspec

    from skep.cli.terminal.settings_options import split_pair
    from skep.model.run import AskedSettings
    from skep.runtime.value_errors import explained

    settings = {name: value for name, value in given.items() if value is not None}
    for text in chosen:
        name, value = split_pair(text, "--set")
        settings[name] = _value(value)
    try:
        asked = msgspec.convert(settings, AskedSettings, strict=False)
    except msgspec.ValidationError as error:
        raise click.UsageError(f"--set: {explained(error, settings, AskedSettings)}") from error
    return asked if settings else None


def _value(text: str) -> Any:
    """Decode valid JSON (numbers, true, lists, objects); other text is returned unchanged."""
    import msgspec

    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError:
        return text


async def _submit(
    reach: CenterAddress,
    sent: Sent,
    source: IO[bytes],
    new: bool,
    settings: AskedSettings | None,
    waiting: WaitOptions | None,
    as_json: bool,
) -> int:
    async with connected(reach) as client:
        if new:
            await _open(client, sent.run, settings)
        progress = await _progress(client, sent.run) if waiting else None
        try:
            await send(client, sent, source)
        except SkepError as error:
            return _stopped(error, sent)
        if waiting is None or progress is None:
            _show(sent, None, as_json)
            return ExitCode.OK
        return await _wait(client, sent, waiting, progress, as_json)


async def _open(client: CenterClient, run: str, settings: AskedSettings | None) -> None:
    from skep.wire.api.runs import OpenRun

    await client.api.runs.open(run, OpenRun() if settings is None else OpenRun(settings=settings))


async def send(client: CenterClient, sent: Sent, source: IO[bytes]) -> None:
    """Send the batches in order; raises at the first rejected batch, which is not stored."""
    from skep.cli.commands.crawl.request_batches import batches

    for batch in batches(source):
        try:
            answer = await client.api.queue.submit(sent.run, batch.items)
        except SkepError as error:
            raise batch.explain(error) from error
        sent.accepted += answer.new
        sent.known += answer.known
        sent.batches += 1
    if not sent.batches:  # nothing to send; raises UnknownRun if the run does not exist
        await client.api.runs.show(sent.run)


def _stopped(error: SkepError, sent: Sent) -> int:
    if not sent.batches:
        raise error
    say(f"error: {error.detail} ({error.code})")
    say(
        f"{sent.accepted} accepted, {sent.known} known before the error; "
        "fix the line and send the whole input again"
    )
    return ExitCode.PARTLY


async def _progress(client: CenterClient, run: str) -> Progress:
    """A progress bar whose rate ignores requests that had already ended."""
    from skep.cli.terminal.follow_run import ledger_of
    from skep.cli.terminal.progress import Progress
    from skep.runtime.clock import SystemClock

    ledger = await ledger_of(client, run)
    return Progress(sys.stderr, SystemClock(), ledger.accepted - ledger.open)


async def _wait(
    client: CenterClient, sent: Sent, waiting: WaitOptions, progress: Progress, as_json: bool
) -> int:
    from skep.cli.commands.results.wait_reasons import say_failures
    from skep.cli.terminal.follow_run import WaitedLongEnough, follow, still_running
    from skep.runtime.clock import SystemClock

    try:
        ledger = await follow(client, sent.run, progress, SystemClock(), waiting.seconds)
    except WaitedLongEnough:
        _show(sent, None, as_json)
        say(f"timed out; {still_running(sent.run)}")
        return ExitCode.TIMED_OUT
    if waiting.finish:
        await client.api.runs.change(sent.run, "finish")
        say(f"run {sent.run} is finished")
    _show(sent, ledger, as_json)
    await say_failures(client, sent.run, ledger.dead)
    return exit_of(ledger, waiting.allow)


def _show(sent: Sent, ledger: Ledger | None, as_json: bool) -> None:
    if as_json:
        figures: dict[str, Any] = {"run": sent.run, "accepted": sent.accepted, "known": sent.known}
        show_json({**figures, "ledger": ledger} if ledger else figures)
        return
    show(f"{sent.accepted} accepted, {sent.known} known")
    if ledger:
        show(ledger.line())
