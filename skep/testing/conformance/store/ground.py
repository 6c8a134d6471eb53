"""Short words for the store's conformance suite: runs, requests, leases and reports.

Used by tests only. `assert_accounted` is the last line of every test: the ledger, read
from running counts and counted row by row, says the same and leaves nobody out.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from hashlib import blake2b
from typing import Any

import msgspec

from skep.model.block import BlockRef, BlockReport, Leased
from skep.model.ledger import Ledger
from skep.model.request import Outcome, Work
from skep.model.run import Run, RunSettings
from skep.model.states import RunState
from skep.store.ports import Store
from skep.store.ports.blocks import Placed, RetryRule, Settlement
from skep.store.ports.requests import PackPlan, RequestRow

#: The center's clock in most tests; leases made by `lease` end at LATER.
NOW = 1000.0
LATER = 1030.0
#: Losses after which a block is given up, unless a test says otherwise.
LEASE_LIMIT = 10
NOWHERE = Placed()

_works = msgspec.msgpack.Decoder(list[Work])


async def assert_accounted(store: Store) -> None:
    """accepted = the sum of all states, for each run and over all, in both ledgers."""
    runs = [run.id for run in await store.runs.recent(10_000)]
    for run_id in (None, *runs):
        read, audit = await store.ledgers.read(run_id), await store.ledgers.audit(run_id)
        assert read == audit, f"{run_id}: {read.line()} | {audit.line()}"
        assert audit.unaccounted == 0, f"{run_id}: {audit.line()}"


async def new_run(store: Store, run_id: str = "run", **settings: Any) -> Run:
    run = Run(run_id, "job", RunState.RUNNING, RunSettings(**settings), NOW)
    assert await store.runs.create(run)
    return run


def row(name: object, priority: int = 5, **fields: Any) -> RequestRow:
    """A request that is told from others by `name`."""
    uri = f"http://host/{name}"
    digest = blake2b(uri.encode(), digest_size=16).digest()
    fields = {"arguments": b"", **fields}
    return RequestRow(digest, fields.pop("uri", uri), "host", priority, **fields)


def rows(count: int, priority: int = 5, start: int = 0, **fields: Any) -> list[RequestRow]:
    return [row(number, priority, **fields) for number in range(start, start + count)]


async def pack(
    store: Store, run: str = "run", limit: int = 1000, size: int = 10, priority: int = 5
) -> list[BlockRef]:
    packing = await store.requests.pack([PackPlan(run, priority, limit, size)], NOW)
    return packing.blocks


async def packed(store: Store, count: int, run: str = "run", size: int = 10) -> list[BlockRef]:
    """A new run with `count` requests in READY blocks."""
    await new_run(store, run)
    await store.requests.accept(run, rows(count), NOW)
    return await pack(store, run, size=size)


async def lease(
    store: Store,
    refs: Iterable[BlockRef | int],
    agent: str = "agent",
    now: float = NOW,
    until: float = LATER,
) -> list[Leased]:
    ids = [ref if isinstance(ref, int) else ref.id for ref in refs]
    return await store.blocks.lease(ids, agent, now, until)


async def leased(store: Store, count: int, run: str = "run", size: int = 10) -> list[Leased]:
    """A new run with `count` requests in the hands of `agent`."""
    return await lease(store, await packed(store, count, run, size))


async def leased_one(store: Store, count: int, run: str = "run") -> Leased:
    """The same in one block."""
    (block,) = await leased(store, count, run, size=count)
    return block


def works(block: Leased) -> list[Work]:
    return _works.decode(block.body)


def ids(block: Leased) -> list[int]:
    return [work.id for work in works(block)]


def done(numbers: Iterable[int]) -> list[Outcome]:
    return [Outcome(number, status=200) for number in numbers]


def failed(numbers: Iterable[int], failure: str = "timeout") -> list[Outcome]:
    return [Outcome(number, failure=failure, detail="no answer") for number in numbers]


def settlement(
    block: Leased,
    outcomes: Sequence[Outcome],
    again_at: Mapping[int, float] | None = None,
    *,
    agent: str = "agent",
    token: int | None = None,
    final: bool = True,
    frames: bytes = b"",
    placed: Placed = NOWHERE,
) -> Settlement:
    held = block.token if token is None else token
    report = BlockReport(block.id, held, list(outcomes), final, frames)
    return Settlement(report, agent, RetryRule(dict(again_at or {})), placed)


async def settle(store: Store, *settlements: Settlement, now: float = NOW) -> list[str]:
    """The verdicts, as words."""
    return [verdict.verdict for verdict in await store.blocks.settle(settlements, now)]


async def ledger(store: Store, run: str | None = "run") -> Ledger:
    return await store.ledgers.read(run)


async def history(store: Store, block: int) -> list[tuple[str, str]]:
    """(state, detail) of each line."""
    return [(c.state.name, c.detail) for c in await store.blocks.history(block)]
