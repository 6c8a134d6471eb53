"""Keys with which agents encrypt the data on their disks. Run by centers.

An agent gets its key when it registers and never writes it to disk. All centers of a store
derive the same key from one secret in the store, so an agent may register at any of them.
"""

from __future__ import annotations

import secrets

from skep.runtime.file_encryption import KEY_BYTES, derived
from skep.store.ports import Store


class AgentKeys:
    """One center's view; the secret is read once."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._secret = b""

    async def of(self, agent: str) -> bytes:
        """The key of an agent."""
        if not self._secret:
            fresh = secrets.token_bytes(KEY_BYTES)
            self._secret = await self._store.agents.files_secret(fresh)
        return derived(self._secret, f"agent {agent}")
