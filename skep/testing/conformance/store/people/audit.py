"""What every store promises about the audit log. A part of `StoreConformance`."""

from __future__ import annotations

import msgspec
import pytest

from skep.errors import InvalidInput, UnknownRun
from skep.model.people.audit import AuditOutcome, AuditRow
from skep.store.ports import Store
from skep.testing.conformance.store.ground import NOW, new_run
from skep.testing.conformance.store.ground import rows as request_rows
from skep.wire.filter.check import read_filter
from skep.wire.filter.tables import AUDIT

ROWS = [
    AuditRow(NOW, "anna", "set_job", "job:quotes", before='{"a":1}', after='{"a":"é"}'),
    AuditRow(NOW + 1, "token:ci", "delete_job", "job:quotes", address="192.0.2.7", client="cli"),
    AuditRow(NOW + 2, "", "set_job", "job:x", AuditOutcome.REFUSED, "unauthorized", times=12),
    AuditRow(
        NOW + 3, "anna", "login", "user:anna", AuditOutcome.FAILED, credential="00ff", center="c1"
    ),
]


class AuditPromises:
    async def find(
        self, store: Store, text: str = "", limit: int = 100, after: int = 0
    ) -> list[int]:
        """Places in `ROWS`, of what a filter finds."""
        wanted = read_filter(text, AUDIT, NOW + 10)
        page = await store.audit.page(wanted, limit, after)
        plain = [msgspec.structs.replace(row, id=0) for row in page.items]
        return [ROWS.index(row) for row in plain]

    async def test_rows_are_found_by_the_filter_newest_first(self, store: Store) -> None:
        await store.audit.add(ROWS)
        await store.audit.add([])
        assert await self.find(store) == [3, 2, 1, 0]
        assert await self.find(store, "user:anna") == [3, 0]
        assert await self.find(store, "user:token:*") == [1]
        assert await self.find(store, "object:job:quotes") == [1, 0]
        assert await self.find(store, "action:set_job outcome:done") == [0]
        assert await self.find(store, "outcome:refused,failed") == [3, 2]
        assert await self.find(store, "address:192.0.2.*") == [1]
        assert await self.find(store, "since:8s -user:anna") == [2]
        assert await self.find(store, "quotes") == [1, 0]

    async def test_pages_follow_the_number_of_the_row(self, store: Store) -> None:
        await store.audit.add(ROWS)
        wanted = read_filter("", AUDIT, NOW)
        first = await store.audit.page(wanted, 3)
        assert first.next == first.items[-1].id
        second = await store.audit.page(wanted, 3, first.next or 0)
        assert (len(second.items), second.next) == (1, None)
        assert await self.find(store, "user:anna", 1, first.next or 0) == [0]

    async def test_the_oldest_rows_are_forgotten(self, store: Store) -> None:
        await store.audit.add(ROWS)
        assert await store.audit.forget(NOW, 0) == 0
        assert await store.audit.forget(NOW + 1, 0) == 1
        assert await store.audit.forget(NOW, 10**9) == 0
        assert await store.audit.forget(NOW, 400) == 1
        assert await self.find(store) == [3, 2]
        assert await store.audit.forget(NOW, 1, limit=1) == 1
        assert await self.find(store) == [3]

    async def test_requests_and_their_audit_row_are_stored_together(self, store: Store) -> None:
        await new_run(store)
        row = ROWS[0]
        await store.requests.accept("run", request_rows(2), NOW, row)
        assert await self.find(store) == [0]
        with pytest.raises(UnknownRun):
            await store.requests.accept("ghost", request_rows(2), NOW, row)
        long = msgspec.structs.replace(row, who="x" * 101)
        with pytest.raises(InvalidInput):
            await store.requests.accept("run", request_rows(5), NOW, long)
        assert await self.find(store) == [0]
        assert (await store.ledgers.read()).accepted == 2, "all or nothing"

    async def test_a_text_that_is_too_long_stores_nothing(self, store: Store) -> None:
        with pytest.raises(InvalidInput):
            await store.audit.add([ROWS[0], msgspec.structs.replace(ROWS[1], who="x" * 101)])
        assert await self.find(store) == []
