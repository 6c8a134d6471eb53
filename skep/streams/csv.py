"""Records as rows of comma-separated values, safe to open in a spreadsheet.

Pure. The header comes from the first record, or from the option `fields`. Text that a
spreadsheet would take for a formula gets an apostrophe in front; numbers stay numbers.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from typing import Any

from skep.errors import InvalidInput
from skep.streams.json_records import as_json, plain, sort_out
from skep.streams.ports import Record, Refused
from skep.streams.sink_options import CsvOptions

FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r")


class Csv:
    """The format of one file."""

    def __init__(self, options: CsvOptions) -> None:
        self._separator = options.separator
        self._escape = options.escape
        self._chosen = tuple(name.strip() for name in options.fields.split(",") if name.strip())

    def fields_of(self, head: bytes) -> tuple[str, ...]:
        text = io.StringIO(head.decode(errors="replace"), newline="")
        return tuple(next(csv.reader(text, delimiter=self._separator), ()))

    def encode(
        self, records: Sequence[Record], fields: tuple[str, ...], *, at_start: bool
    ) -> tuple[bytes, list[Refused], tuple[str, ...]]:
        columns = fields or self._chosen or self._first_fields(records)
        rows, refused = sort_out(records, lambda record: self._row(record, columns))
        header = self._line(columns) if at_start and columns else b""
        return header + b"".join(rows), refused, columns

    def _first_fields(self, records: Sequence[Record]) -> tuple[str, ...]:
        names, _ = sort_out(records[:1], self._header_of)
        return names[0] if names else ()

    def _header_of(self, record: Record) -> tuple[str, ...]:
        self._line(list(record.data))  # raises for a name that no file can hold
        return tuple(record.data)

    def _row(self, record: Record, columns: tuple[str, ...]) -> bytes:
        if not columns:
            raise InvalidInput("the first record has no fields for a header: use fields=...")
        unknown = [] if self._chosen else [name for name in record.data if name not in columns]
        if unknown:
            raise InvalidInput(
                f"the file has no column {unknown[0]!r}: name all columns with fields=..."
            )
        return self._line([record.data.get(name) for name in columns])

    def _line(self, cells: Sequence[Any]) -> bytes:
        out = io.StringIO(newline="")
        csv.writer(out, delimiter=self._separator).writerow([self._cell(cell) for cell in cells])
        try:
            return out.getvalue().encode()
        except UnicodeEncodeError as error:
            raise InvalidInput(f"it cannot be written as UTF-8: {error.reason}") from error

    def _cell(self, value: Any) -> str:
        known = plain(value)
        if known is None:
            return ""
        if not isinstance(known, str):
            return as_json(known).decode()
        return f"'{known}" if self._escape and known.startswith(FORMULA_STARTS) else known
