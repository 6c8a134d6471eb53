"""Short functions for the store's conformance suite: runs, requests and ledgers.

Used by tests only. `assert_accounted` ends every test: the ledger from the running counts equals
the ledger counted from all rows.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import Any

from skep.model.ledger import Ledger
from skep.model.run import Run, RunSettings
from skep.model.states import RunState
from skep.store.ports import Store
from skep.store.ports.requests import RequestRow

#: The center's time in most tests; leases made by `lease` end at LATER.
NOW = 1000.0
LATER = 1030.0
#: Losses after which a block is given up, unless a test sets another limit.
LEASE_LIMIT = 10


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
    """A request that differs from others by `name`."""
    uri = f"http://host/{name}"
    digest = blake2b(uri.encode(), digest_size=16).digest()
    fields = {"arguments": b"", **fields}
    return RequestRow(digest, fields.pop("uri", uri), "host", priority, **fields)


def rows(count: int, priority: int = 5, start: int = 0, **fields: Any) -> list[RequestRow]:
    return [row(number, priority, **fields) for number in range(start, start + count)]


async def ledger(store: Store, run: str | None = "run") -> Ledger:
    return await store.ledgers.read(run)


async def history(store: Store, block: int) -> list[tuple[str, str]]:
    """(state, detail) of each line."""
    return [(c.state.name, c.detail) for c in await store.blocks.history(block)]
