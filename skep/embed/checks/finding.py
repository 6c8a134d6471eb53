"""What a check found, and what to do about it."""

from __future__ import annotations

import msgspec


class Finding(msgspec.Struct):
    """One thing that was looked at, and what to do when it is not well."""

    name: str
    ok: bool
    detail: str
    fix: str = ""
    #: It need not be wrong: it is shown, and the exit code stays 0.
    warning: bool = False
