"""The summary of `skep run`: text on stderr, or JSON on stdout.

Printed once, when the session has ended. Only this module chooses the exit code.
"""

from __future__ import annotations

import msgspec

from skep.cli.terminal.exit_codes import ExitCode
from skep.cli.terminal.output import say, show_json
from skep.cli.terminal.wait_outcome import AllowDead, exit_of
from skep.model.ledger import Ledger
from skep.spiders.driving import stats as ends
from skep.spiders.driving.stats import Ending, Stats
from skep.spiders.session.plan import SessionResult
from skep.spiders.session.summary import Summary


def tell(result: SessionResult, *, as_json: bool) -> None:
    """Print the summary as text on stderr, or as JSON on stdout."""
    summary = Summary.of(result)
    if as_json:
        show_json({**msgspec.to_builtins(summary), "ledger": result.ledger})
    for line in lines(summary, result.ledger):
        say(line)


def lines(summary: Summary, ledger: Ledger | None) -> list[str]:
    """The summary as lines of text."""
    rate = summary.pages / summary.seconds if summary.seconds else 0.0
    errors = ", ".join(f"{count:,} {kind}" for kind, count in summary.errors.items())
    counts = f"{summary.pages:,} pages, {summary.items:,} items, {_size(summary.bytes)}"
    said = [
        f"{summary.reason}: {counts} in {summary.seconds:.1f} s ({rate:,.0f} pages/s)",
        f"errors   {errors or 'none'}",
    ]
    if ledger is not None:
        said.append(f"ledger   {ledger.line()}")
    for output in summary.outputs:
        refused = f", {output.refused:,} refused" if output.refused else ""
        said.append(f"items    {output.items:,} into {output.place}{refused}")
    if not summary.outputs:
        said.append(f"items    kept by the center: `skep data export {summary.run}`")
    return said


def _size(count: int) -> str:
    """Format a number of bytes in a suitable unit."""
    for unit, size in (("GB", 1e9), ("MB", 1e6), ("KB", 1e3)):
        if count >= size:
            return f"{count / size:.1f} {unit}"
    return f"{count} bytes"


def exit_code(result: SessionResult, again: str, allow: AllowDead) -> ExitCode:
    """Print what is left to do and return the code. `again` is the command that continues."""
    stuck = [output for output in result.outputs if output.problem]
    for output in stuck:
        say(f"not all items are in {output.place}: {output.problem}")
    if result.ending.reason == ends.PAUSED:
        say(f"paused; continue with: {again}")
        return ExitCode.INTERRUPTED
    if not result.ending.good:
        return _failed(result.ending, again)
    if result.every_callback_raised:
        say("error: the callback raised an exception on every page; see the log above")
        return ExitCode.FAILED
    code = exit_of(result.ledger or _seen(result.ending.stats), allow, finished=True)
    if code is not ExitCode.OK:
        say(f"some requests failed: `skep failures ls --run {result.run}` shows why")
    if stuck and result.interrupted:
        return ExitCode.INTERRUPTED
    return ExitCode.FAILED if stuck else code


def _failed(ending: Ending, again: str) -> ExitCode:
    say(f"error: {ending.sentence} ({ending.reason})")
    if ending.reason != ends.CANCELLED:
        say(f"continue with: {again}")
    return ExitCode.UNREACHABLE if ending.reason == ends.UNREACHABLE else ExitCode.FAILED


def _seen(stats: Stats) -> Ledger:
    """The counts of this process, if the center did not answer the last call."""
    return Ledger(accepted=stats.pages + stats.failed, done=stats.pages, dead=stats.failed)
