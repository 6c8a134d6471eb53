"""The result of a check, and how to fix it."""

from __future__ import annotations

import msgspec


class Finding(msgspec.Struct):
    """The result of one check, and how to fix a problem."""

    name: str
    ok: bool
    detail: str
    fix: str = ""
    #: A warning only: it is shown, and the exit code stays 0.
    warning: bool = False
