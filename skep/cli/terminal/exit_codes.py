"""Exit codes of all commands, and the exit code of each error. Scripts depend on them.

Every command uses this table. Numbers may be added; their meaning never changes.
"""

from __future__ import annotations

from enum import IntEnum

from skep import errors


class ExitCode(IntEnum):
    """The numbers are part of the public interface: their meaning never changes."""

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
    ExitCode.OK: "Success. Commands that wait: every request is done.",
    ExitCode.FAILED: "Failure. Commands that wait: no request is done.",
    ExitCode.USAGE: "The command, its input or the configuration is not valid.",
    ExitCode.NOT_FOUND: "The run, agent or other object does not exist.",
    ExitCode.DENIED: "The token is missing, unknown, or does not allow this.",
    ExitCode.CONFLICT: "The change conflicts with the current state.",
    ExitCode.UNREACHABLE: "No center answers, or it is temporarily unavailable; try again.",
    ExitCode.PARTLY: "Partial success. Commands that wait: some requests are dead.",
    ExitCode.TIMED_OUT: "The command stopped waiting; the work continues.",
    ExitCode.INTERRUPTED: "The command was interrupted (Ctrl-C).",
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
    """The exit code of the nearest class in the error tree that has one."""
    kinds = (kind for kind in type(error).__mro__ if kind in _CODES)
    return next((_CODES[kind] for kind in kinds), ExitCode.FAILED)
