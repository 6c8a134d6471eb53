"""States that rows do not hold as one word: of jobs and agents. Pure; used by all processes.

The same words are in the field tables, in the facts of a row and in SQL.
"""

from __future__ import annotations

from enum import StrEnum


class JobWord(StrEnum):
    """What a job may do."""

    ENABLED = "enabled"
    DISABLED = "disabled"
    DELETED = "deleted"


class JobKind(StrEnum):
    """What a job runs."""

    REQUESTS = "requests"
    SPIDER = "spider"
    APP = "app"


class AgentWord(StrEnum):
    """As `skep agents` shows it: alive or dead by the center's clock, or what a person said."""

    ALIVE = "alive"
    DEAD = "dead"
    DISABLED = "disabled"
    CORDONED = "cordoned"
    DRAINING = "draining"
    REVOKED = "revoked"
