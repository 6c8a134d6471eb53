"""Conformance tests of a store for delivery into sinks. Part of `StoreConformance`."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from skep.errors import LostLease
from skep.model.delivery import Delivery, DeliveryLease, DeliveryState
from skep.model.states import RunState
from skep.store.ports import Store
from skep.store.ports.checkpoints import ItemRow
from skep.testing.conformance.store.ground import NOW, new_run

OPEN, DONE, GIVEN_UP = DeliveryState.OPEN, DeliveryState.DONE, DeliveryState.GIVEN_UP


def to(sink: str, run: str = "run", **fields: object) -> Delivery:
    return Delivery(run, sink, "job", f"redis://{sink}", **fields)  # type: ignore[arg-type]


async def with_items(store: Store, count: int) -> None:
    await new_run(store)
    driver = await store.checkpoints.take_over("run")
    rows = [ItemRow(0, n, msgspec.msgpack.encode({"n": n})) for n in range(count)]
    await store.checkpoints.checkpoint("run", driver, [], rows, [], NOW)


async def claimed(store: Store, holder: str = "a", now: float = NOW) -> Delivery:
    (held,) = await store.deliveries.claim(holder, now, now + 10, 5)
    return held


class DeliveryPromises:
    async def test_a_delivery_has_one_holder(self, store: Store, other_store: Store) -> None:
        await store.deliveries.open([to(f"s{n}") for n in range(12)], NOW)
        claims = [
            center.deliveries.claim(f"c{n}", NOW, NOW + 10, 4)
            for n, center in enumerate((store, other_store) * 3)
        ]
        held = [one.sink for claim in await asyncio.gather(*claims) for one in claim]
        assert len(held) == len(set(held)) == 12
        assert await store.deliveries.claim("late", NOW + 5, NOW + 15, 100) == []
        taken = await store.deliveries.claim("late", NOW + 11, NOW + 20, 100)
        assert [one.lease for one in taken] == [2] * 12
        await store.deliveries.release("late")
        assert len(await store.deliveries.claim("next", NOW + 11, NOW + 20, 100)) == 12

    async def test_a_lease_that_was_lost_moves_no_position(self, store: Store) -> None:
        """E5: the store refuses every write of a center that lost the delivery."""
        await with_items(store, 5)
        await store.deliveries.open([to("s")], NOW)
        old = await claimed(store)
        await store.deliveries.save(old.proof, 2, 2, NOW)
        new = await claimed(store, "b", NOW + 11)
        assert (new.position, new.delivered, new.lease) == (2, 2, old.lease + 1)
        deliveries = store.deliveries
        for lost in (old.proof, DeliveryLease("run", "ghost", "a", 1)):
            for call in (
                deliveries.look(lost),
                deliveries.save(lost, 4, 2, NOW),
                deliveries.failed(lost, "away", NOW, NOW),
                deliveries.rest(lost, NOW),
                deliveries.done(lost, NOW),
                deliveries.reject(lost, 1, "no", NOW),
                deliveries.resent(lost, 1, "", NOW),
            ):
                with pytest.raises(LostLease, match=lost.sink):
                    await call
        (view,) = await deliveries.of("run")
        assert view.delivery == new
        await deliveries.save(new.proof, 3, 1, NOW)

    async def test_what_failed_comes_again_at_its_time(self, store: Store) -> None:
        await with_items(store, 5)
        await store.deliveries.open([to("s")], NOW)
        held = await claimed(store)
        assert await store.deliveries.look(held.proof) == (RunState.RUNNING, False)
        await store.deliveries.failed(held.proof, "away\0", NOW + 60, NOW + 1)
        (view,) = await store.deliveries.unfinished(10)
        assert (view.pending, view.delivery.tries, view.delivery.error_at) == (5, 1, NOW + 1)
        assert view.delivery.error == "away\ufffd"
        assert await store.deliveries.claim("b", NOW + 30, NOW + 40, 5) == []
        again = await claimed(store, "b", NOW + 61)
        await store.deliveries.save(again.proof, 10**12, 5, NOW + 62)
        (view,) = await store.deliveries.of("run")
        assert (view.pending, view.delivery.tries, view.delivery.error) == (0, 0, "")
        assert await store.deliveries.unfinished(10) == []
        await store.deliveries.rest(again.proof, NOW + 90)
        await store.deliveries.open([to("s")], NOW + 63)
        held = await claimed(store, "b", NOW + 63)
        await store.runs.move("run", RunState.FINISHED, "", NOW)
        assert await store.deliveries.look(held.proof) == (RunState.FINISHED, False)
        assert await store.deliveries.done(held.proof, NOW + 64)
        assert await store.deliveries.claim("b", NOW + 99, NOW + 199, 5) == []

    async def test_a_person_retries_and_gives_up(self, store: Store) -> None:
        """E4: a delivery that was given up is fenced, stays so, and can be retried."""
        await new_run(store)
        await store.deliveries.open([to("s"), to("t")], NOW)
        held = (await store.deliveries.claim("a", NOW, NOW + 10, 5))[0]
        given = await store.deliveries.decide("run", held.sink, GIVEN_UP, NOW)
        assert [(one.sink, one.state) for one in given] == [(held.sink, GIVEN_UP)]
        with pytest.raises(LostLease):
            await store.deliveries.save(held.proof, 1, 1, NOW)
        assert await store.deliveries.decide("run", held.sink, GIVEN_UP, NOW) == []
        await store.deliveries.open([to(held.sink)], NOW)
        assert len(await store.deliveries.claim("b", NOW + 11, NOW + 20, 5)) == 1
        retried = await store.deliveries.decide("run", "", OPEN, NOW + 12)
        assert [one.state for one in retried] == [OPEN, OPEN]
        assert len(await store.deliveries.claim("b", NOW + 12, NOW + 20, 5)) == 2
        assert await store.deliveries.decide("ghost", "", OPEN, NOW) == []

    async def test_refused_items_get_numbers_that_never_come_again(self, store: Store) -> None:
        """E11: tickets grow, so that a sink with positions skips none."""
        await with_items(store, 3)
        await store.deliveries.open([to("s")], NOW)
        held = await claimed(store)
        ids = [item.id for item in await store.checkpoints.items("run", 0, 10)]
        deliveries = store.deliveries
        for number in (ids[0], ids[1], ids[0], 10**12):
            await deliveries.reject(held.proof, number, "no", NOW)
        rows = await deliveries.rejected("run", 0, 10)
        assert [(row.item, row.tries) for row in rows] == [(ids[0], 2), (ids[1], 1), (10**12, 1)]
        assert await deliveries.resend("run", "other", [], NOW) == 0
        assert await deliveries.resend("run", "s", [rows[1].no], NOW) == 1
        assert await deliveries.look(held.proof) == (RunState.RUNNING, True)
        assert not await deliveries.done(held.proof, NOW), "one waits to be sent again"
        ((row, item),) = await deliveries.to_resend(held.proof, 10)
        assert item is not None
        assert (row.ticket, item.id) == (1, ids[1])
        await deliveries.resent(held.proof, row.no, "", NOW)
        assert await deliveries.resend("run", "", [], NOW) == 2
        found = await deliveries.to_resend(held.proof, 10)
        assert [(row.ticket, item and item.id) for row, item in found] == [(2, ids[0]), (3, None)]
        await deliveries.resent(held.proof, found[0][0].no, "still no", NOW + 1)
        again = (await deliveries.rejected("run", 0, 1))[0]
        assert (again.reason, again.tries, again.ticket) == ("still no", 3, 0)
        (view,) = await deliveries.of("run")
        assert (view.rejected, view.delivery.resends) == (2, 3)

    async def test_a_position_from_elsewhere_only_goes_forward(self, store: Store) -> None:
        await store.deliveries.adopt(to("s", position=5))
        await store.deliveries.adopt(to("s", position=3))
        assert (await store.deliveries.of("run"))[0].delivery.position == 5
        held = await claimed(store)
        await store.deliveries.adopt(to("s", position=9))
        with pytest.raises(LostLease):
            await store.deliveries.save(held.proof, 6, 1, NOW)
        assert (await claimed(store)).position == 9

    async def test_items_that_are_not_delivered_are_not_deleted(self, store: Store) -> None:
        """E4: retention keeps them until they are delivered or given up."""
        await with_items(store, 3)
        await store.runs.move("run", RunState.FINISHED, "", NOW)
        await store.deliveries.open([to("s")], NOW)
        assert await store.retention.ended("rows", NOW + 1, (0.0, 0), 5) == []
        await store.deliveries.decide("run", "", GIVEN_UP, NOW)
        (ended,) = await store.retention.ended("rows", NOW + 1, (0.0, 0), 5)
        assert ended.id == "run"
