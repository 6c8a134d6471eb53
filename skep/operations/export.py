"""The act that writes everything that matches into a file, as JSON lines. Run by centers.

The lines of a part are stored with its position, in one transaction: after a crash no line is
missing and none is there twice. Secrets are masked before anything is stored.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import zstandard

from skep.errors import Conflict, NotFound
from skep.model.operations import FilePiece, Key, Operation, OperationState, result_of
from skep.operations.acts import ActTraits, Batch
from skep.operations.kinds import NO_MATCH
from skep.store.ports import Store

#: Maximum bytes of a file, before they are compressed.
FILE_LIMIT = 512 * 2**20
FULL = "the file is full"
MEDIA = "application/octet-stream"


@dataclass(frozen=True, slots=True)
class ExportAct:
    """Writes objects as lists show them. `shown` masks their secrets."""

    traits: ActTraits
    store: Store
    alive_after: float
    shown: Callable[[Any], Any]
    limit: int = FILE_LIMIT

    async def apply(self, batch: Batch) -> Operation:
        keys, wanted = batch.part.keys, batch.wanted
        found = await self.store.targets.objects(wanted, self.alive_after, keys)
        piece = await asyncio.to_thread(_piece, [self.shown(one) for _, one in found])
        file = await self.store.operations.file(batch.operation.id)
        fits = file.bytes + piece.size <= self.limit
        written = [key for key, _ in found]
        results = [
            *result_of("done" if fits else "failed", "" if fits else FULL, written),
            *result_of("skipped", NO_MATCH, _others(keys, written)),
        ]
        stored = piece if fits and piece.lines else None
        lease = batch.operation.proof
        return await self.store.operations.export(lease, batch.part.no, results, stored)


def _others(keys: Sequence[Key], written: Sequence[Key]) -> list[Key]:
    seen = set(written)
    return [key for key in keys if key not in seen]


def _piece(objects: Sequence[Any]) -> FilePiece:
    data = b"".join(msgspec.json.encode(one) + b"\n" for one in objects)
    return FilePiece(len(objects), len(data), zstandard.ZstdCompressor().compress(data))


def check_file(operation: Operation, traits: ActTraits) -> None:
    """Raises NotFound for an operation that makes no file, and Conflict before it has ended."""
    if not traits.exports:
        raise NotFound(f"operation {operation.id} makes no file; only the act export does")
    if operation.is_open:
        raise Conflict(f"operation {operation.id} is {operation.state}; wait until it has ended")
    if operation.state is not OperationState.DONE:
        raise NotFound(f"operation {operation.id} was {operation.state}; it has no file")


async def file_pieces(store: Store, number: int, pieces: int) -> AsyncIterator[bytes]:
    """The content of a file, a piece at a time. Raises NotFound when it is deleted meanwhile."""
    after, read = -1, 0
    while (found := await store.operations.file_piece(number, after)) is not None:
        after, data = found
        read += 1
        yield zstandard.ZstdDecompressor().decompress(data)
    if read != pieces:
        raise NotFound(f"the file of operation {number} was deleted")
