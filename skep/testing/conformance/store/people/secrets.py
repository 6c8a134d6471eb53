"""What every store promises about encrypted secrets. A part of `StoreConformance`."""

from __future__ import annotations

import asyncio

import pytest
from msgspec.structs import replace

from skep.errors import Conflict
from skep.model.people.stored_secret import SecretRow
from skep.store.ports import Store
from skep.testing.conformance.store.ground import NOW

ROW = SecretRow("mail", "notices", "0123456789abcdef", bytes(range(256)), NOW, "anna")


class SecretPromises:
    async def test_secrets_are_kept_by_name(self, store: Store) -> None:
        other = replace(ROW, name="Mail", use="apps")
        for row in (ROW, other):
            await store.secrets.put(row, 10)
        assert await store.secrets.all() == [other, ROW]
        newer = replace(ROW, sealed=b"\0other", changed_at=NOW + 1)
        await store.secrets.put(newer, 10)
        assert await store.secrets.all() == [other, newer]
        assert await store.secrets.remove("mail")
        assert not await store.secrets.remove("mail")
        assert await store.secrets.all() == [other]

    async def test_the_number_of_secrets_is_bounded(self, store: Store) -> None:
        await store.secrets.put(ROW, 1)
        await store.secrets.put(replace(ROW, sealed=b"again"), 1)
        with pytest.raises(Conflict, match="skep secret rm"):
            await store.secrets.put(replace(ROW, name="more"), 1)

    async def test_a_secret_that_was_set_meanwhile_is_not_replaced(self, store: Store) -> None:
        await store.secrets.put(ROW, 10)
        newer = replace(ROW, sealed=b"newer")
        await store.secrets.put(newer, 10)
        assert not await store.secrets.replace(ROW, replace(ROW, key="k2", sealed=b"rotated"))
        assert await store.secrets.all() == [newer]
        rotated = replace(newer, key="k2", sealed=b"rotated")
        assert await store.secrets.replace(newer, rotated)
        assert await store.secrets.all() == [rotated]

    async def test_two_centers_rotate_a_secret_once(self, store: Store, other_store: Store) -> None:
        await store.secrets.put(ROW, 10)
        fresh = [replace(ROW, key=key, sealed=key.encode()) for key in ("k1", "k2")]
        done = await asyncio.gather(
            store.secrets.replace(ROW, fresh[0]), other_store.secrets.replace(ROW, fresh[1])
        )
        assert sorted(done) == [False, True]
        assert await store.secrets.all() == [fresh[done.index(True)]]
