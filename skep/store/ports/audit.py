"""The store's contract for the audit log. The rules of `store/ports` apply.

Called by centers only. Rows are added and, after their time, deleted; they never change.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from skep.model.filter.checked import CheckedFilter
from skep.model.people.audit import AuditPage, AuditRow


class AuditLog(Protocol):
    """Used by `access`."""

    async def add(self, rows: Sequence[AuditRow]) -> None:
        """Store rows; the same call again stores them again."""

    async def page(self, wanted: CheckedFilter, limit: int = 100, after: int = 0) -> AuditPage:
        """Rows that a filter of the resource `audit` finds, newest first, below the number
        `after`; 0 = from the newest."""

    async def forget(self, before: float, most_bytes: int, limit: int = 5000) -> int:
        """Delete the oldest rows: those before that time, and those above that many bytes in
        total (0 = no limit); at most `limit` of each. Returns how many."""
