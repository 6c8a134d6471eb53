"""The classes of failed downloads, and those that no retry can change. Pure.

All processes use it. `docs/how-to/failures.md` describes the classes.
"""

from __future__ import annotations

from enum import StrEnum


class FailureClass(StrEnum):
    """Why a download failed. `''` in an outcome means success."""

    NETWORK = "network"
    TIMEOUT = "timeout"
    STATUS = "status"
    BLOCKED = "blocked"
    CONTENT = "content"
    CODE = "code"
    LIMIT = "limit"
    LOST = "lost"
    ROBOTS = "robots"


#: Failures that a retry would meet again: such a request is not retried.
HOPELESS = frozenset({FailureClass.LIMIT, FailureClass.ROBOTS})
