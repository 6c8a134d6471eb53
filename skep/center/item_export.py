"""All items of a run as one file, read and sent in batches. Used by the API.

CSV is made by the format of the sinks: text that a spreadsheet would take for a formula is escaped.
Nothing is kept in memory beyond one batch and the names of the columns.
"""

from __future__ import annotations

from collections.abc import AsyncIterator

import msgspec

from skep.store.ports import Store
from skep.streams.csv import Csv
from skep.streams.json_records import as_json
from skep.streams.ports import Record
from skep.streams.sink_options import CsvOptions

BATCH = 1000


async def as_lines(store: Store, run: str) -> AsyncIterator[bytes]:
    """One JSON object per line."""
    async for records in _batches(store, run):
        yield b"".join(as_json(record.data) + b"\n" for record in records)


async def as_csv(store: Store, run: str, columns: tuple[str, ...]) -> AsyncIterator[bytes]:
    """A header and a line for each item; without columns all fields of all items."""
    chosen = columns or await _fields(store, run)
    if not chosen:
        return
    form = Csv(CsvOptions(fields=",".join(chosen)))
    at_start = True
    async for records in _batches(store, run):
        content, _, _ = form.encode(records, chosen, at_start=at_start)
        at_start = False
        yield content


async def _fields(store: Store, run: str) -> tuple[str, ...]:
    """All fields in the order of first appearance."""
    fields: dict[str, None] = {}
    async for records in _batches(store, run):
        for record in records:
            fields.update(dict.fromkeys(record.data))
    return tuple(fields)


async def _batches(store: Store, run: str) -> AsyncIterator[list[Record]]:
    after = 0
    while kept := await store.checkpoints.items(run, after, BATCH):
        after = kept[-1].id
        yield [Record(one.id, msgspec.msgpack.decode(one.data)) for one in kept]
