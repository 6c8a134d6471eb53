"""What `skep runs` and `skep job` say after a word to a run: whom it reached (R2).

It only reads the answer: a word that was given stays given when nobody waits for it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from skep.cli.terminal.exit_codes import ExitCode

if TYPE_CHECKING:
    from skep.wire.api.runs import Reached

#: Seconds that a command waits for processes to obey, unless it is told otherwise.
WAIT = 5.0

wait_option = click.option(
    "--wait",
    type=click.FloatRange(0, 60),
    default=WAIT,
    show_default=True,
    help="Seconds to wait until its processes have obeyed; 0 waits for nobody.",
)


def in_words(reached: Sequence[Reached], wait: float) -> str:
    """`2 agents, 1 spider: obeyed in 0.4 s`, or who has not."""
    if not reached:
        return "no process had to be told"
    everybody = _counted(reached)
    late = [one for one in reached if not one.obeyed]
    if not late:
        longest = max(one.seconds or 0.0 for one in reached)
        return f"{everybody}: obeyed in {longest:.1f} s"
    if not wait:
        return f"{everybody}: told, and not waited for"
    names = ", ".join(f"{one.kind} {one.name or '(of no center yet)'}" for one in late)
    return f"{everybody}: after {wait:g} s {len(late)} had not said that they obeyed: {names}"


def _counted(reached: Sequence[Reached]) -> str:
    kinds = Counter(one.kind for one in reached)
    return ", ".join(_kind(kind, count) for kind, count in sorted(kinds.items()))


def _kind(kind: str, count: int) -> str:
    if kind == "generators":
        return "generators" if count == 1 else f"generators of {count} runs"
    return f"{count} {kind}" + ("" if count == 1 else "s")


def exit_of(reached: Sequence[Reached], wait: float) -> ExitCode:
    """Waited in vain: the word is given, and its processes will hear it."""
    return ExitCode.TIMED_OUT if wait and any(not one.obeyed for one in reached) else ExitCode.OK
