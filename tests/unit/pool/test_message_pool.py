"""The rules of the message pool, on a real store, together with the engine of a pipeline."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from random import Random
from typing import Any

import pytest

from skep.errors import InvalidInput, TooLarge, Unavailable
from skep.model.pipelines.document import Pipeline
from skep.model.pipelines.pool import NewPooled, PoolLedger, PoolState
from skep.pipelines.definitions.document_check import PipelineChecker
from skep.pipelines.engine.engine import Engine, Ports
from skep.pipelines.engine.message import Arrived
from skep.pipelines.engine.outcomes import Kind
from skep.pipelines.engine.pooled_messages import arrived_again, for_the_pool, settled
from skep.pipelines.inline_tests import GivenAnswers, GivenStores, SeenOutputs
from skep.pool.message_pool import MessagePool, PoolLimits
from skep.store.sql.store import SqlStore
from skep.testing.clock import ManualClock

LIMITS = PoolLimits(call=20, body=100, messages=30, lease=10)


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[SqlStore]:
    opened = SqlStore(f"sqlite:///{tmp_path / 'skep.db'}")
    await opened.open()
    yield opened
    await opened.close()


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def pool(store: SqlStore, clock: ManualClock) -> MessagePool:
    return MessagePool(store.pool, clock, LIMITS)


def message(name: object, **fields: Any) -> NewPooled:
    return NewPooled(**{"origin": str(name), "input": "in", "body": b"{}", **fields})


async def test_limits_refuse_a_call_as_a_whole(pool: MessagePool) -> None:
    with pytest.raises(TooLarge, match="21 messages"):
        await pool.keep("p", [message(number) for number in range(21)])
    with pytest.raises(TooLarge, match="message b has 101 bytes"):
        await pool.keep("p", [message("a"), message("b", body=b"x" * 101)])
    with pytest.raises(InvalidInput, match="no origin"):
        await pool.keep("p", [message("a"), message("")])
    assert await pool.ledger() == PoolLedger()
    assert await pool.keep("p", []) == 0


async def test_a_full_pool_stops_its_pipeline_and_no_other(pool: MessagePool) -> None:
    for first in (0, 15):
        await pool.keep("p", [message(number) for number in range(first, first + 15)])
    with pytest.raises(Unavailable, match="pool of p is full"):
        await pool.keep("p", [message("more")])
    assert await pool.keep("other", [message("more")]) == 1
    assert await pool.discard("p", None) == 30
    assert await pool.keep("p", [message("more")]) == 1


async def test_retries_take_a_share_of_a_batch(pool: MessagePool) -> None:
    """S5: retries never starve fresh messages, and one always fits."""
    await pool.keep("p", [message(number) for number in range(20)])
    assert len(await pool.take("p", "a", 20, 0.25)) == 5
    assert len(await pool.take("p", "a", 2, 0.01)) == 1
    assert await pool.release("a") == 6
    assert len(await pool.take("p", "b", 1000, 1.0)) == 20


async def test_a_sweep_makes_expired_messages_dead(pool: MessagePool, clock: ManualClock) -> None:
    await pool.keep("p", [message("a", expires=clock.now() + 5)])
    assert await pool.sweep() == 0
    clock.advance(5)
    assert await pool.sweep() == 1
    assert await pool.ledger("p") == PoolLedger(put=1, dead=1)
    [dead] = await pool.page("p", PoolState.DEAD, 0, 10)
    assert await pool.send_again("p", [dead.id]) == 1
    assert len(await pool.take("p", "a", 10, 1)) == 1


def pipeline(clock: ManualClock) -> Pipeline:
    return PipelineChecker(clock).check(
        {
            "name": "p",
            "inputs": "in",
            "filter": "id != 0",
            "operations": [
                {"outputs": [{"target": "a", "values": {"id": "=id"}}]},
                {"outputs": [{"target": "b", "values": {"id": "=id"}}]},
            ],
            "retry": {"limit": 2, "first": 10, "most": 10},
        }
    )


class Worker:
    """One batch from the input or from the pool, as a worker will do it."""

    def __init__(self, pool: MessagePool, clock: ManualClock) -> None:
        self.outputs = SeenOutputs({})
        self._pool = pool
        ports = Ports(GivenStores({}), GivenAnswers({}), self.outputs)
        self.engine = Engine(pipeline(clock), ports, clock, Random(1))

    def break_outputs(self, **broken: str) -> None:
        self.outputs._broken = broken

    async def read(self, *bodies: bytes) -> list[str]:
        arrived = [Arrived(body, "in") for body in bodies]
        outcomes = await self.engine.process(arrived)
        new = [
            for_the_pool(one, f"in/{n}", outcome, LIMITS.body)
            for n, (one, outcome) in enumerate(zip(arrived, outcomes, strict=True))
        ]
        await self._pool.keep("p", [one for one in new if one is not None])
        return [str(outcome.kind) for outcome in outcomes]

    async def retry(self) -> list[str]:
        taken = await self._pool.take("p", "w", 100, 1)
        outcomes = await self.engine.process([arrived_again(one) for one in taken])
        pairs = zip(taken, outcomes, strict=True)
        assert await self._pool.settle([settled(one, outcome) for one, outcome in pairs]) == []
        return [str(outcome.kind) for outcome in outcomes]

    def seen(self, target: str) -> list[Any]:
        return [record.values["id"] for name, record in self.outputs.seen if name == target]


async def test_a_failed_output_goes_through_the_pool_alone(
    pool: MessagePool, clock: ManualClock
) -> None:
    """S5, S6: the pool remembers which outputs are done; input = outcomes at every moment."""
    worker = Worker(pool, clock)
    worker.break_outputs(b="disk full")
    kinds = await worker.read(b'{"id": 1}', b'{"id": 0}', b"<html>" * 100, b'{"id": 2}')
    assert kinds == ["failed", "dropped", "dead", "failed"]
    assert await pool.ledger("p") == PoolLedger(put=3, waiting=2, dead=1)
    [dead] = await pool.page("p", PoolState.DEAD, 0, 9)
    assert (len(dead.body), dead.stage) == (100, "parse"), "the beginning is kept for people"
    assert await worker.retry() == [], "not due yet"
    clock.advance(10)
    assert await worker.retry() == ["failed", "failed"]
    worker.break_outputs()
    clock.advance(10)
    assert await worker.retry() == ["out", "out"]
    assert (worker.seen("a"), sorted(worker.seen("b"))) == ([1, 2], [1, 2])
    assert await pool.ledger("p") == PoolLedger(put=3, dead=1, done=2)
    assert worker.engine.tally.balanced


async def test_a_message_past_its_error_limit_is_dead_until_a_person_sends_it_again(
    pool: MessagePool, clock: ManualClock
) -> None:
    """S5: error count, limit, dead, and back."""
    worker = Worker(pool, clock)
    worker.break_outputs(a="down", b="down")
    assert await worker.read(b'{"id": 1}') == ["failed"]
    for kind in (Kind.FAILED, Kind.DEAD):
        clock.advance(10)
        assert await worker.retry() == [kind.value]
    clock.advance(1000)
    assert await worker.retry() == []
    worker.break_outputs()
    assert await pool.send_again("p", None) == 1
    assert await worker.retry() == ["out"]
    assert await pool.ledger("p") == PoolLedger(put=1, done=1)
