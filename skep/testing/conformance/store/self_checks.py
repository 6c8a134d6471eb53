"""Conformance tests for the self-check: planted differences are found and repaired once."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, get_args

import pytest
import sqlalchemy as sa

from skep.errors import LostLease
from skep.model.delivery import Delivery, DeliveryState
from skep.model.jobs.job import JobRun
from skep.model.states import RunState
from skep.store.ports.self_checks import StoreCheck
from skep.testing.conformance.store.ground import NOW, new_run, rows
from skep.wire.filter.check import read_filter
from skep.wire.filter.tables import REQUESTS

KINDS: tuple[StoreCheck, ...] = get_args(StoreCheck)
DIGEST = bytes(range(32))


async def plant(store: Any, kind: StoreCheck) -> str:
    """Plant one difference, as a lost write would leave it; return its name."""
    if kind in _PLANTED:
        return await _PLANTED[kind](store)
    await new_run(store, "ended")
    if kind == "tokens":
        await store.tokens.add(DIGEST, "driver", "ended", NOW)
    else:
        await store.allocations.allocate("ended", ["a"], NOW)
    await store.runs.move("ended", RunState.FINISHED, "", NOW)
    if kind == "tokens":
        return DIGEST.hex()
    return str((await store.allocations.get("ended")).number)


async def _plant_segment(store: Any) -> str:
    row = "INSERT INTO segment_runs (segment, run, n) VALUES ('s', 424242, 7)"
    await store.database.write(lambda tx: tx.sql(row))
    return "424242"


async def _plant_hold(store: Any) -> str:
    row = "INSERT INTO site_holds (host, block, until, spacing) VALUES ('h', 424242, 9e9, 1)"
    await store.database.write(lambda tx: tx.sql(row))
    return "h"


async def _plant_position(store: Any, position: int = 0, *, done: bool = True) -> str:
    """Plant an item that no sink got, of a delivery that counts as done."""
    await new_run(store, "given")
    number = "(SELECT no FROM runs WHERE id = 'given')"
    row = f"INSERT INTO items (run, request, n, data, at) VALUES ({number}, 1, 0, '{{}}', 1)"  # noqa: S608
    await store.database.write(lambda tx: tx.sql(row))
    if done:
        await store.runs.move("given", RunState.FINISHED, "", NOW)
    state = DeliveryState.DONE if done else DeliveryState.OPEN
    delivery = Delivery("given", "s", "j", "jsonl:x", position=position, state=state)
    await store.deliveries.open([delivery], NOW)
    return "given"


async def plant_request_without_span(store: Any) -> str:
    """Plant a request as a center of an earlier version accepts it, but with its minute."""
    await new_run(store, "unseen")
    await store.requests.accept("unseen", rows(1), NOW)
    await store.database.write(lambda tx: tx.sql("DELETE FROM request_spans WHERE kind = 0"))
    query = sa.text("SELECT run, id FROM requests")
    [(run, number)] = await store.database.read(lambda c: c.execute(query).all())
    return f"0-{run}-{number}-{number}"


async def plant_dead_request_without_failure(store: Any) -> str:
    """Plant a dead request as a center of an earlier version leaves it."""
    await new_run(store, "dead")
    number = "(SELECT no FROM runs WHERE id = 'dead')"
    columns = "run, fingerprint, uri, host, priority, arguments, state, failures, not_before"
    values = f"{number}, '0123456789abcdef', 'http://h/', 'h', 5, '', 5, 1, 0"
    for statement in (
        "INSERT INTO faults (id, failure, status, text) VALUES (42, 'network', 0, 'refused')",
        f"INSERT INTO requests ({columns}, created_at, fault, died_at) VALUES ({values}, 1, 42, 1)",  # noqa: S608
        f"INSERT INTO request_spans (kind, number, low, high) VALUES (0, {number}, 1, 999999999)",  # noqa: S608
        "INSERT INTO request_spans (kind, number, low, high) VALUES (1, 0, 1, 999999999)",
        f"INSERT INTO tallies (run, state, n) VALUES ({number}, -1, 1), ({number}, 5, 1)",  # noqa: S608
    ):
        await store.database.write(lambda tx, one=statement: tx.sql(one))
    query = sa.text("SELECT MAX(id) FROM requests")
    return str(await store.database.read(lambda c: c.execute(query).scalar()))


_PLANTED: dict[str, Callable[[Any], Awaitable[str]]] = {
    "holds": _plant_hold,
    "segments": _plant_segment,
    "positions": _plant_position,
    "spans": plant_request_without_span,
    "failures": plant_dead_request_without_failure,
}


async def _listed(store: Any, text: str) -> int:
    found = await store.lists.find(read_filter(text, REQUESTS, NOW + 1), None, 1000)
    return len(found.items)


class CheckPromises:
    """`find` and `repair` of every kind."""

    @pytest.mark.parametrize("kind", KINDS)
    async def test_a_difference_is_repaired_once(self, store: Any, kind: StoreCheck) -> None:
        """Self-check: found in bounded steps, repaired by one of several callers."""
        assert await store.checks.find(kind, "", 10) == ([], "")
        name = await plant(store, kind)
        found, _ = await store.checks.find(kind, "", 1)
        assert found == [name]
        assert await store.checks.repair(kind, [name], NOW) == [name]
        assert await store.checks.repair(kind, [name], NOW) == []
        assert (await store.checks.find(kind, "", 10))[0] == []

    async def test_lists_find_what_an_earlier_version_wrote(self, store: Any) -> None:
        """Self-check, fault 44: during an upgrade older centers write no spans and no failure
        classes. Lists find their requests after one step, which is smaller than the table."""
        await new_run(store, "old")
        await store.requests.accept("old", rows(120), NOW)
        await store.database.write(lambda tx: tx.sql("DELETE FROM request_spans"))
        await plant_dead_request_without_failure(store)
        asked = {"run:old": 120, "since:2m": 120, "error:network": 1}
        assert [await _listed(store, text) for text in asked] == [0, 0, 0]
        for kind in ("spans", "failures"):
            after, steps = "", 0
            while after or not steps:
                found, after = await store.checks.find(kind, after, 1)
                assert await store.checks.repair(kind, found, NOW) == found
                steps += 1
            assert steps > 1
        assert [await _listed(store, text) for text in asked] == list(asked.values())

    async def test_what_is_right_is_left_alone(self, store: Any) -> None:
        """Self-check: a repair with an outdated view changes nothing."""
        await new_run(store, "going")
        await store.tokens.add(DIGEST, "driver", "going", NOW)
        await store.tokens.add(b"x" * 32, "admin", "", NOW)
        made = await store.allocations.allocate("going", ["a"], NOW)
        for kind in KINDS:
            assert (await store.checks.find(kind, "", 10))[0] == []
        assert await store.checks.repair("tokens", [DIGEST.hex(), (b"x" * 32).hex()], NOW) == []
        assert await store.checks.repair("allocations", [str(made.number)], NOW) == []
        assert await store.tokens.find(DIGEST) is not None
        assert [one.run for one in await store.allocations.open()] == ["going"]

    async def test_a_delivery_that_is_not_done_is_opened_again(self, store: Any) -> None:
        """Self-check: any center delivers the item after all."""
        await _plant_position(store)
        assert await store.checks.repair("positions", ["given"], NOW) == ["given"]
        [held] = await store.deliveries.claim("other", NOW, NOW + 60, 10)
        assert (held.run, held.position) == ("given", 0)

    async def test_a_position_behind_every_item_comes_back(self, store: Any) -> None:
        """Self-check: later items would be skipped. The center that delivers is fenced out; a
        delivery that a user gave up does not change."""
        await _plant_position(store, 424242, done=False)
        [held] = await store.deliveries.claim("c", NOW, NOW + 60, 10)
        assert (await store.checks.find("positions", "", 10))[0] == ["given"]
        assert await store.checks.repair("positions", ["given"], NOW) == ["given"]
        with pytest.raises(LostLease):
            await store.deliveries.save(held.proof, 424242, 1, NOW)
        [view] = await store.deliveries.of("given")
        last = (await store.checkpoints.items("given", 0, 10))[-1].id
        assert (view.delivery.position, view.pending) == (last, 0)
        await store.deliveries.decide("given", "s", DeliveryState.GIVEN_UP, NOW)
        assert (await store.checks.find("positions", "", 10))[0] == []

    async def test_a_token_of_a_failed_run_is_wrong_once_no_center_holds_it(
        self, store: Any
    ) -> None:
        """Self-check, E2: a dead center has not revoked it; a live center still may."""
        await new_run(store, "r")
        begun = JobRun("r", "job", "k", 1, NOW, holder="c", held_until=NOW + 9, lease=1)
        await store.job_runs.begin(begun)
        await store.tokens.add(DIGEST, "driver", "r", NOW)
        await store.runs.move("r", RunState.FAILED, "", NOW)
        assert (await store.checks.find("tokens", "", 10))[0] == []
        await store.job_runs.release("c")
        assert (await store.checks.find("tokens", "", 10))[0] == [DIGEST.hex()]
        await store.runs.move("r", RunState.RUNNING, "", NOW)
        assert await store.checks.repair("tokens", [DIGEST.hex()], NOW) == []
        await store.runs.move("r", RunState.FAILED, "", NOW)
        assert await store.checks.repair("tokens", [DIGEST.hex()], NOW) == [DIGEST.hex()]

    async def test_a_walk_is_cut_into_steps(self, store: Any) -> None:
        """Self-check: no step reads more rows than its limit."""
        await new_run(store, "ended")
        digests = [bytes([n]) * 32 for n in range(1, 8)]
        for digest in digests:
            await store.tokens.add(digest, "driver", "ended", NOW)
        await store.runs.move("ended", RunState.CANCELLED, "", NOW)
        seen, after, steps = list[str](), "", 0
        while steps == 0 or after:
            found, after = await store.checks.find("tokens", after, 3)
            assert len(found) <= 3
            seen += found
            steps += 1
        assert seen == [digest.hex() for digest in digests]
        assert steps == 3
