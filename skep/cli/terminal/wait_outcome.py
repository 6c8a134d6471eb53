"""The exit code of all commands that wait for requests.

0 if every request is done, 7 if some are not, 1 if none is done. `--allow-dead` allows a number
of failures with exit code 0. Pure; commands pass the last ledger that they read.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from skep.cli.terminal.exit_codes import ExitCode

if TYPE_CHECKING:
    from skep.model.ledger import Ledger

_FORM = re.compile(r"(\d+(?:\.\d+)?)(%?)")
_ALL_PERCENT = 100.0


@dataclass(frozen=True, slots=True)
class AllowDead:
    """The number or percentage of requests that may fail with exit code 0."""

    count: float = 0.0
    percent: bool = False

    def covers(self, lost: int, accepted: int) -> bool:
        """Whether `lost` of `accepted` requests are within the limit."""
        limit = accepted * self.count / _ALL_PERCENT if self.percent else self.count
        return lost <= limit


NO_DEAD = AllowDead()


@dataclass(frozen=True, slots=True)
class WaitOptions:
    """How long a command waits for a run, and how many dead requests it accepts."""

    seconds: float | None
    allow: AllowDead = NO_DEAD
    #: Whether to finish the run when all of its requests have ended.
    finish: bool = False


class AllowDeadType(click.ParamType[AllowDead]):
    """`5` requests or `2.5%` of them."""

    name = "N|N%"

    def convert(self, value: Any, param: Any, ctx: Any) -> AllowDead:
        if isinstance(value, AllowDead):
            return value
        found = _FORM.fullmatch(str(value).strip())
        if found is None or (not found[2] and "." in found[1]):
            self.fail(f"{value!r} is not a number or a percentage, such as 5 or 2.5%", param, ctx)
        if found[2] and float(found[1]) > _ALL_PERCENT:
            self.fail(f"{value!r}: a percentage is between 0% and 100%", param, ctx)
        return AllowDead(float(found[1]), bool(found[2]))


allow_dead_option = click.option(
    "--allow-dead",
    type=AllowDeadType(),
    default=NO_DEAD,
    help="Exit with 0 if at most this number or percentage of the requests failed.",
)


def not_done(ledger: Ledger, *, finished: bool) -> int:
    """Requests that ended without success. Cancelled requests count, unless the run finished at
    its own limit, which cancels the rest on purpose."""
    lost = ledger.dead + ledger.expired
    return lost if finished else lost + ledger.cancelled


def exit_of(ledger: Ledger, allow: AllowDead = NO_DEAD, *, finished: bool = False) -> ExitCode:
    """0: all are done, or the rest is within `allow`. 7: some are not done. 1: none is done."""
    lost = not_done(ledger, finished=finished)
    if allow.covers(lost, ledger.accepted):
        return ExitCode.OK
    return ExitCode.PARTLY if ledger.done else ExitCode.FAILED
