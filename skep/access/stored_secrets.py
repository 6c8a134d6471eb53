"""Secrets in the store: set, listed, read by their use, and encrypted again. Run by centers.

Values are encrypted before they reach the store. Rows are kept in memory as they are stored and
read again every few seconds, so that code without access to the store can read a secret; a value
is decrypted for each use and never kept. No method returns a value to a caller of the API.
"""

from __future__ import annotations

import asyncio

from skep.access.secret_keys import SecretKeys
from skep.errors import ConfigurationError, NotFound, Unavailable
from skep.model.people.stored_secret import SECRETS_LIMIT, SecretRow, SecretUse, SecretView
from skep.runtime.clock import Clock
from skep.runtime.secret_encryption import NotReadable, decrypt, encrypt
from skep.store.ports import Store

#: Times that a rotation reads the rows again because others were set meanwhile.
_ROUNDS = 5


class StoredSecrets:
    """One center's view of the stored secrets."""

    def __init__(self, store: Store, keys: SecretKeys, clock: Clock) -> None:
        self._store = store
        self._keys = keys
        self._clock = clock
        self._rows: dict[str, SecretRow] = {}

    async def look(self) -> None:
        """Read the rows; a step of a loop."""
        self._rows = {row.name: row for row in await self._store.secrets.all()}

    async def check(self) -> str:
        """For readiness; raises ConfigurationError if a stored secret cannot be read here."""
        await self.look()
        if not self._rows:
            return "no secrets are stored"
        keys = await asyncio.to_thread(self._keys.all)
        lost = {row.key for row in self._rows.values()} - keys.keys()
        if lost:
            raise ConfigurationError(
                f"stored secrets need the key {min(lost)}, which {self._keys.place} does not have; "
                "copy the line from the center that stored them, or remove them (`skep secret rm`)"
            )
        return f"{len(self._rows)} secrets are stored"

    async def set(self, name: str, use: SecretUse, value: bytes, who: str) -> SecretView:
        """Store a secret, or replace it. The first one makes the key."""
        await self.look()
        key, secret_key = await asyncio.to_thread(self._key)
        sealed = encrypt(secret_key, value, _about(name, use))
        row = SecretRow(name, use, key, sealed, self._clock.now(), who)
        await self._store.secrets.put(row, SECRETS_LIMIT)
        self._rows[name] = row
        return await self._view(row)

    async def list(self) -> list[SecretView]:
        await self.look()
        return [await self._view(row) for row in self._rows.values()]

    async def get(self, name: str) -> SecretView:
        """Raises NotFound."""
        await self.look()
        if name not in self._rows:
            raise NotFound(f"there is no stored secret {name!r}; `skep secret ls` lists them")
        return await self._view(self._rows[name])

    async def remove(self, name: str) -> SecretView:
        """Raises NotFound."""
        view = await self.get(name)
        await self._store.secrets.remove(name)
        self._rows.pop(name, None)
        return view

    async def rotate(self, *, make_key: bool) -> tuple[str, int]:
        """Encrypt all secrets with the first key, a new one if asked for; its id, and how many
        secrets were encrypted again. Secrets stay readable meanwhile. Raises ConfigurationError,
        before anything is changed, if a secret cannot be read."""
        await self.check()
        if make_key:
            await asyncio.to_thread(self._keys.add)
        key, secret_key = await asyncio.to_thread(self._key)
        done = 0
        for _ in range(_ROUNDS):
            await self.look()
            old = [row for row in self._rows.values() if row.key != key]
            if not old:
                return key, done
            for row in old:
                done += await self._encrypt_again(row, key, secret_key)
        raise Unavailable("secrets were set all the time; rotate again")

    async def _encrypt_again(self, row: SecretRow, key: str, secret_key: bytes) -> bool:
        value = await asyncio.to_thread(self._opened, row)
        sealed = encrypt(secret_key, value, _about(row.name, row.use))
        fresh = SecretRow(row.name, row.use, key, sealed, row.changed_at, row.changed_by)
        return await self._store.secrets.replace(row, fresh)

    def read(self, name: str, use: SecretUse) -> bytes | None:
        """The value, None if nothing of this name is stored for this use; blocks. Raises
        ConfigurationError, which never shows it."""
        row = self._rows.get(name)
        return self._opened(row) if row is not None and row.use == use else None

    def _opened(self, row: SecretRow) -> bytes:
        key = self._keys.all().get(row.key)
        if key is None:
            raise ConfigurationError(
                f"the stored secret {row.name!r} needs the key {row.key}, which "
                f"{self._keys.place} does not have"
            )
        try:
            return decrypt(key, row.sealed, _about(row.name, row.use))
        except NotReadable:
            raise ConfigurationError(
                f"the stored secret {row.name!r} was changed outside of Skep; set it again"
            ) from None

    def _key(self) -> tuple[str, bytes]:
        """The key that encrypts. One is made only while nothing is stored: another center may have
        the key of what is."""
        keys = self._keys.all()
        if not keys:
            if self._rows:
                raise ConfigurationError(
                    f"{self._keys.place} does not exist, and secrets are stored; copy it from the "
                    "center that stored them"
                )
            self._keys.add()
            keys = self._keys.all()
        return next(iter(keys.items()))

    async def _view(self, row: SecretRow) -> SecretView:
        try:
            known = row.key in await asyncio.to_thread(self._keys.all)
        except ConfigurationError:
            known = False
        return SecretView(row.name, row.use, row.key, row.changed_at, row.changed_by, known)


def _about(name: str, use: SecretUse) -> str:
    """What a value is bound to: access to the database alone cannot give it to another
    reader."""
    return f"secret {use} {name}"
