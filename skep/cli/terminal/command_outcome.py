"""What `skep runs` and `skep job` print after a command to a run: who acknowledged it.

It only reads the answer. The command remains in effect if no process acknowledges it in time.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from skep.cli.terminal.exit_codes import ExitCode

if TYPE_CHECKING:
    from skep.wire.api.runs import Reached

#: Default number of seconds to wait for acknowledgements.
WAIT = 5.0

wait_option = click.option(
    "--wait",
    type=click.FloatRange(0, 60),
    default=WAIT,
    show_default=True,
    help="Seconds to wait for acknowledgements; 0 does not wait.",
)


def in_words(reached: Sequence[Reached], wait: float) -> str:
    """`2 agents and 1 spider acknowledged in 0.4 s`, or the processes that did not."""
    if not reached:
        return "no process to notify"
    processes = _counted(reached)
    late = [one for one in reached if not one.obeyed]
    if not late:
        longest = max(one.seconds or 0.0 for one in reached)
        return f"{processes} acknowledged in {longest:.1f} s"
    if not wait:
        return f"sent to {processes}; not waiting for acknowledgements"
    names = ", ".join(f"{one.kind} {one.name or '(not at a center yet)'}" for one in late)
    return (
        f"sent to {processes}; {len(late)} of {len(reached)} did not acknowledge within "
        f"{wait:g} s: {names}"
    )


def _counted(reached: Sequence[Reached]) -> str:
    kinds = Counter(one.kind for one in reached)
    *others, last = (_kind(kind, count) for kind, count in sorted(kinds.items()))
    return f"{', '.join(others)} and {last}" if others else last


def _kind(kind: str, count: int) -> str:
    if kind == "generators":
        return "generators" if count == 1 else f"generators of {count} runs"
    return f"{count} {kind}" + ("" if count == 1 else "s")


def exit_of(reached: Sequence[Reached], wait: float) -> ExitCode:
    """TIMED_OUT if a process did not acknowledge in time; it still receives the command."""
    return ExitCode.TIMED_OUT if wait and any(not one.obeyed for one in reached) else ExitCode.OK
