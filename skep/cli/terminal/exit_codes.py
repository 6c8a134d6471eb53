"""Exit codes of every command, and which error ends with which. Scripts rely on them.

Every command ends through this table. A number may be added, never given another meaning.
"""

from __future__ import annotations

from enum import IntEnum

from skep import errors


class ExitCode(IntEnum):
    """The numbers are promised: they never change their meaning."""

    OK = 0
    FAILED = 1
    USAGE = 2
    NOT_FOUND = 3
    DENIED = 4
    CONFLICT = 5
    UNREACHABLE = 6
    PARTLY = 7
    TIMED_OUT = 8
    INTERRUPTED = 130


MEANINGS: dict[ExitCode, str] = {
    ExitCode.OK: "It worked; for commands that wait: every request is done.",
    ExitCode.FAILED: "It failed; for commands that wait: no request is done.",
    ExitCode.USAGE: "The command, its input or the configuration must be changed.",
    ExitCode.NOT_FOUND: "There is no such run, agent or other thing.",
    ExitCode.DENIED: "The token is missing, not known, or does not allow this.",
    ExitCode.CONFLICT: "It conflicts with what is there.",
    ExitCode.UNREACHABLE: "No center answers, or it cannot work just now; try again.",
    ExitCode.PARTLY: "Some of it was done, some of it failed; for commands that wait: some "
    "requests are dead.",
    ExitCode.TIMED_OUT: "The time to wait was over; the work goes on.",
    ExitCode.INTERRUPTED: "It was interrupted (Ctrl-C).",
}

_CODES: dict[type[errors.SkepError], ExitCode] = {
    errors.InvalidInput: ExitCode.USAGE,
    errors.ConfigurationError: ExitCode.USAGE,
    errors.Unauthorized: ExitCode.DENIED,
    errors.Forbidden: ExitCode.DENIED,
    errors.NotFound: ExitCode.NOT_FOUND,
    errors.Conflict: ExitCode.CONFLICT,
    errors.Unavailable: ExitCode.UNREACHABLE,
    errors.CenterUnreachable: ExitCode.UNREACHABLE,
}


def code_of(error: errors.SkepError) -> ExitCode:
    """By the nearest kind that has a code of its own."""
    kinds = (kind for kind in type(error).__mro__ if kind in _CODES)
    return next((_CODES[kind] for kind in kinds), ExitCode.FAILED)
