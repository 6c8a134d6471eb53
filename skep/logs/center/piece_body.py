"""The body of a piece: a column of texts and a table of facts, each a zstd frame. Pure.

Texts are apart so that a search decompresses nothing else. A row of the column is the text of a
line; with fields, a separator and the fields as JSON follow. No row holds a newline: one in a
text is a carriage return here, which no safe text contains.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from itertools import chain, pairwise

import msgspec
import zstandard

from skep.errors import StoreDamaged
from skep.model.logs import LogEntry, level_bit

#: Between text and fields; no safe text contains it.
SEPARATOR = "\x1e"
#: Lines of one piece, and bytes of its texts.
LINES_LIMIT = 65_536
TEXTS_LIMIT = 16 * 2**20
_MAGIC = b"SKL1"
#: Magic, size of the facts.
_HEAD = struct.Struct(">4sI")
_FACTS_LIMIT = 8 * 2**20
_MICROSECONDS = 1_000_000
#: Compression of lines that just arrived, and of pieces that stay.
FAST, SMALL = 1, 3


class PieceTable(msgspec.Struct, array_like=True):
    """What is known of each line besides its text."""

    #: (first offset, number of lines) of each unbroken sequence.
    runs: list[tuple[int, int]]
    #: Microseconds since the epoch; from the second line on, since the line before.
    steps: list[int]
    levels: bytes
    #: (id of the piece that they came in, number of lines); empty for a piece as it came.
    arrivals: list[tuple[int, int]]

    def times(self) -> list[float]:
        """Seconds since the epoch, of each line."""
        now, found = 0, []
        for step in self.steps:
            now += step
            found.append(seconds(now))
        return found

    def offsets(self) -> list[int]:
        """The offset of each line."""
        return list(chain.from_iterable(range(first, first + count) for first, count in self.runs))


def microseconds(time: float) -> int:
    """A time as a table holds it."""
    return round(time * _MICROSECONDS)


def seconds(time: int) -> float:
    """A time in seconds, as all other code uses it."""
    return time / _MICROSECONDS


def row_of(entry: LogEntry) -> str:
    """A line of the column of texts."""
    text = entry.text.replace("\n", "\r")
    if not entry.fields:
        return text
    return f"{text}{SEPARATOR}{msgspec.json.encode(entry.fields).decode()}"


def entry_of(row: bytes, time: float, level: int) -> LogEntry:
    """The line of a row."""
    text, separator, fields = row.decode().partition(SEPARATOR)
    found = msgspec.json.decode(fields) if separator else {}
    return LogEntry(time, level, text.replace("\r", "\n"), found)


def make_table(runs: list[tuple[int, int]], times: list[int], levels: bytes) -> PieceTable:
    """Of lines as they arrived; times are in microseconds."""
    steps = [times[0], *[after - before for before, after in pairwise(times)]]
    return PieceTable(runs, steps, levels, [])


def joined_tables(parts: Sequence[tuple[int, PieceTable]]) -> PieceTable:
    """The tables of consecutive pieces as one; each comes with the id of its piece."""
    steps: list[int] = []
    last = 0
    for _, table in parts:
        steps += [table.steps[0] - last, *table.steps[1:]]
        last = sum(table.steps)
    runs = list(chain.from_iterable(table.runs for _, table in parts))
    arrivals = [
        arrival
        for number, table in parts
        for arrival in table.arrivals or [(number, len(table.levels))]
    ]
    return PieceTable(runs, steps, b"".join(table.levels for _, table in parts), arrivals)


def pack_body(table: PieceTable, texts: bytes, effort: int) -> bytes:
    """`texts` are the rows, joined by newlines."""
    compressor = zstandard.ZstdCompressor(level=effort)
    facts = compressor.compress(msgspec.msgpack.encode(table))
    return _HEAD.pack(_MAGIC, len(facts)) + facts + compressor.compress(texts)


def read_texts(body: bytes) -> bytes:
    """Raises StoreDamaged."""
    return _decompressed(body[_HEAD.size + _facts_size(body) :], TEXTS_LIMIT)


def read_table(body: bytes) -> PieceTable:
    """Raises StoreDamaged."""
    facts = body[_HEAD.size : _HEAD.size + _facts_size(body)]
    try:
        return msgspec.msgpack.decode(_decompressed(facts, _FACTS_LIMIT), type=PieceTable)
    except msgspec.MsgspecError as error:
        raise StoreDamaged(f"the facts of a log piece cannot be read: {error}") from error


def _facts_size(body: bytes) -> int:
    if len(body) < _HEAD.size or body[:4] != _MAGIC:
        raise StoreDamaged("the body of a log piece does not begin as it should")
    size: int = _HEAD.unpack_from(body)[1]
    return size


def _decompressed(frame: bytes, limit: int) -> bytes:
    try:
        if zstandard.frame_content_size(frame) > limit:
            raise StoreDamaged(f"a log piece is over {limit} bytes")
        return zstandard.ZstdDecompressor().decompress(frame)
    except zstandard.ZstdError as error:
        raise StoreDamaged(f"a log piece cannot be decompressed: {error}") from error


def level_bits(levels: bytes) -> int:
    """The level bits of a piece with lines of these levels."""
    bits = 0
    for level in set(levels):
        bits |= level_bit(level)
    return bits
