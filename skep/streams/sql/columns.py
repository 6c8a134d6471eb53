"""The columns of a table and what a batch of records needs of them.

Pure: from the columns that are there and the records to come it plans which columns are
added or widened, and refuses the records that no plan can fit.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from skep.errors import InvalidInput
from skep.streams.json_records import field_of, plain, sort_out
from skep.streams.ports import Record, Refused
from skep.streams.sql.column_kinds import Kind, check_name, has_nul, is_large, kind_of, wider

#: Our own column, in tables without a key.
IDENTITY = "skep_id"


class Rules(msgspec.Struct, frozen=True):
    """What a database and the options ask of a record."""

    keys: tuple[str, ...] = ()
    columns: int = 300
    key_characters: int = 2000
    key_bytes: int = 2000
    nul_fits: bool = True
    folds_names: bool = True

    def fold(self, name: str) -> str:
        return name.casefold() if self.folds_names else name


class Shape(NamedTuple):
    """A table: columns by folded name, as (name, kind)."""

    columns: Mapping[str, tuple[str, Kind]]

    def kind(self, folded: str) -> Kind | None:
        found = self.columns.get(folded)
        return found[1] if found else None


class BatchPlan(NamedTuple):
    """What a batch needs. `rows` are by folded name, in the order of the records."""

    rows: list[dict[str, Any]]
    refused: list[Refused]
    added: dict[str, tuple[str, Kind]]
    widened: dict[str, Kind]


def plan_batch(records: Sequence[Record], shape: Shape, rules: Rules) -> BatchPlan:
    """Read every record once; a refused one leaves no trace in the plan."""
    planner = _Planner(shape, rules)
    rows, refused = sort_out(records, planner.take)
    return BatchPlan(rows, refused, planner.added, planner.widened)


class _Planner:
    """Columns as they will be after the records that were taken so far."""

    def __init__(self, shape: Shape, rules: Rules) -> None:
        self._shape, self._rules = shape, rules
        self._keys = {rules.fold(key) for key in rules.keys}
        self.added: dict[str, tuple[str, Kind]] = {}
        self.widened: dict[str, Kind] = {}
        #: Columns with a whole number that would change as a float.
        self._exact: set[str] = set()

    def take(self, record: Record) -> dict[str, Any]:
        self._check_keys(record)
        row = self._read(record)
        added = {
            folded: (name, kind_of(value))
            for folded, (name, value) in row.items()
            if self._kind(folded) is None and value is not None
        }
        if len(self._shape.columns) + len(self.added) + len(added) > self._rules.columns:
            raise InvalidInput(f"its fields would make more than {self._rules.columns} columns")
        widened = self._widened(row)
        for folded in widened.keys() & self.added.keys():
            self.added[folded] = (self.added[folded][0], widened.pop(folded))
        self.added |= added
        self.widened |= widened
        self._exact |= {folded for folded, (_, value) in row.items() if is_large(value)}
        return {folded: value for folded, (_, value) in row.items()}

    def _kind(self, folded: str) -> Kind | None:
        if folded in self.added:
            return self.added[folded][1]
        return self.widened.get(folded) or self._shape.kind(folded)

    def _read(self, record: Record) -> dict[str, tuple[str, Any]]:
        row: dict[str, tuple[str, Any]] = {}
        for name, given in record.data.items():
            folded = self._rules.fold(check_name(name))
            if folded == IDENTITY and not self._keys:
                raise InvalidInput(f"the column {IDENTITY} is kept for Skep")
            if folded in row:
                raise InvalidInput(f"{name!r} and {row[folded][0]!r} would be one column")
            row[folded] = (name, self._value(name, given))
        return row

    def _value(self, name: str, given: Any) -> Any:
        value = plain(given)
        try:
            if isinstance(value, str):
                value.encode()
        except UnicodeEncodeError as error:
            raise InvalidInput(f"{name!r} cannot be written as UTF-8: {error.reason}") from error
        if not self._rules.nul_fits and has_nul(value):
            raise InvalidInput(f"{name!r} holds a zero character, which this database cannot keep")
        return value

    def _widened(self, row: dict[str, tuple[str, Any]]) -> dict[str, Kind]:
        changed: dict[str, Kind] = {}
        for folded, (name, value) in row.items():
            kind = self._kind(folded)
            if value is None or kind is None or (need := wider(kind, value)) is kind:
                continue
            if folded in self._keys:
                raise InvalidInput(f"its key {name!r} is not {kind}, the kind of those before it")
            changed[folded] = Kind.TEXT if folded in self._exact else need
        return changed

    def _check_keys(self, record: Record) -> None:
        for key in self._rules.keys:
            value = field_of(record, key)
            if isinstance(value, str):
                self._check_key_text(key, value)

    def _check_key_text(self, key: str, value: str) -> None:
        size = len(value.encode(errors="replace"))
        if len(value) > self._rules.key_characters or size > self._rules.key_bytes:
            raise InvalidInput(
                f"its key {key!r} has {len(value)} characters, "
                f"and at most {self._rules.key_characters} can be one"
            )
