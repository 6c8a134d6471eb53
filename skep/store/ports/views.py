"""The store's contract for saved views. The rules of `store/ports` apply."""

from __future__ import annotations

from typing import Protocol

from skep.model.view import View


class Views(Protocol):
    """Used by the API."""

    async def save(self, view: View, limit: int) -> None:
        """Store it, or replace the one of this owner and name. Raises Conflict when the owner has
        `limit` others."""

    async def seen_by(self, owner: str) -> list[View]:
        """Those of the owner first, then what others share; each sorted by name."""

    async def remove(self, owner: str, name: str) -> bool:
        """False when there is none."""
