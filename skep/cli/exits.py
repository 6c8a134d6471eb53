"""Exit codes of every command, and which error ends with which. Scripts rely on them.

Every command ends through this table. A number may be added, never given another meaning.
"""

from __future__ import annotations

from enum import IntEnum

from skep import errors


class Exit(IntEnum):
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


MEANINGS: dict[Exit, str] = {
    Exit.OK: "It worked; for commands that wait: every request is done.",
    Exit.FAILED: "It failed; for commands that wait: no request is done.",
    Exit.USAGE: "The command, its input or the configuration must be changed.",
    Exit.NOT_FOUND: "There is no such run, agent or other thing.",
    Exit.DENIED: "The token is missing, not known, or does not allow this.",
    Exit.CONFLICT: "It conflicts with what is there.",
    Exit.UNREACHABLE: "No center answers, or it cannot work just now; try again.",
    Exit.PARTLY: "Some of it was done, some of it failed; for commands that wait: some requests "
    "are dead.",
    Exit.TIMED_OUT: "The time to wait was over; the work goes on.",
    Exit.INTERRUPTED: "It was interrupted (Ctrl-C).",
}

_CODES: dict[type[errors.SkepError], Exit] = {
    errors.InvalidInput: Exit.USAGE,
    errors.ConfigurationError: Exit.USAGE,
    errors.Unauthorized: Exit.DENIED,
    errors.Forbidden: Exit.DENIED,
    errors.NotFound: Exit.NOT_FOUND,
    errors.Conflict: Exit.CONFLICT,
    errors.Unavailable: Exit.UNREACHABLE,
    errors.CenterUnreachable: Exit.UNREACHABLE,
}


def code_of(error: errors.SkepError) -> Exit:
    """By the nearest kind that has a code of its own."""
    kinds = (kind for kind in type(error).__mro__ if kind in _CODES)
    return next((_CODES[kind] for kind in kinds), Exit.FAILED)
