"""The trace stage: finds the tracking id of each message, loads its source record into `trace`,
and stores what was found. One round trip per store and step, whatever the size of the batch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from skep.errors import SkepError
from skep.model.pipelines.document import LookupPart, Miss, RecordPart, WriteBackPart
from skep.pipelines.engine.batch import Batch
from skep.pipelines.engine.compiled import CompiledTrace
from skep.pipelines.engine.message import InFlow
from skep.pipelines.engine.outcomes import Stage
from skep.pipelines.engine.ports import Stores
from skep.pipelines.expressions.expression import ExpressionFailed
from skep.pipelines.expressions.values import Value

_ID = "trace_id"
Keys = dict[str, list[InFlow]]


class TraceStage:
    """The trace stage of one pipeline."""

    def __init__(self, compiled: CompiledTrace, stores: Stores) -> None:
        self._compiled = compiled
        self._stores = stores

    async def run(self, batch: Batch) -> None:
        found_by: dict[InFlow, str] = {}
        for flow in batch.open():
            flow.fields[_ID] = _text(_value(self._compiled.id, flow))
            flow.fields["trace"] = None  # a message cannot bring its own source record
        part = self._compiled.part
        for number, lookup in enumerate(part.lookups):
            await self._look_up(batch, number, lookup, found_by)
        for flow in batch.open():
            if not flow.fields[_ID]:
                batch.drop(flow, Stage.TRACE, "no tracking id")
        if part.record is not None:
            await self._load(batch, part.record)
        if part.write_back is not None:
            await self._write_back(batch, part.write_back, found_by)

    async def _look_up(
        self, batch: Batch, number: int, lookup: LookupPart, found_by: dict[InFlow, str]
    ) -> None:
        name = self._compiled.names[number]
        without = [flow for flow in batch.open() if not flow.fields[_ID]]
        keys = _keys(self._compiled.keys[number], without)
        for flow, value in await self._asked(batch, lookup.store, keys):
            if found := _text(value):
                flow.fields[_ID] = found
                found_by[flow] = name
            else:
                _missed(batch, flow, lookup.miss, f"not found by {name}")

    async def _load(self, batch: Batch, record: RecordPart) -> None:
        assert self._compiled.record_key is not None  # noqa: S101 - compiled with the record
        keys = _keys(self._compiled.record_key, batch.open())
        for flow, value in await self._asked(batch, record.store, keys):
            if isinstance(value, dict):
                flow.fields["trace"] = value
            else:
                _missed(batch, flow, record.miss, f"no source record in {record.store}")

    async def _asked(self, batch: Batch, store: str, keys: Keys) -> list[tuple[InFlow, Any]]:
        """Each message with its value or None; none when the store cannot be asked."""
        if not keys:
            return []
        try:
            found = await self._stores.get(store, list(keys))
        except SkepError as error:
            for flows in keys.values():
                batch.fail(flows, Stage.TRACE, f"store {store}: {error.detail}")
            return []
        return [(flow, found.get(key)) for key, flows in keys.items() for flow in flows]

    async def _write_back(
        self, batch: Batch, part: WriteBackPart, found_by: dict[InFlow, str]
    ) -> None:
        assert self._compiled.back_key is not None  # noqa: S101 - compiled with the part
        wanted = [
            flow
            for flow in batch.open()
            if found_by.get(flow) in self._compiled.found_by and self._inside(part, flow)
        ]
        keys = _keys(self._compiled.back_key, wanted)
        if not keys:
            return
        entries = {key: flows[-1].fields[_ID] for key, flows in keys.items()}
        try:
            await self._stores.put(part.store, entries, part.ttl)
        except SkepError as error:
            for flows in keys.values():
                batch.fail(flows, Stage.TRACE, f"store {part.store}: {error.detail}")

    def _inside(self, part: WriteBackPart, flow: InFlow) -> bool:
        """Whether the event is inside the attribution window of its source."""
        if not part.window:
            return True
        event, source = (_value(one, flow) for one in self._times())
        if not (isinstance(event, int | float) and isinstance(source, int | float)):
            return False
        return 0 <= event - source <= part.window

    def _times(self) -> tuple[Callable[..., Any], Callable[..., Any]]:
        assert self._compiled.event_time is not None  # noqa: S101 - compiled with the part
        assert self._compiled.source_time is not None  # noqa: S101 - compiled with the part
        return self._compiled.event_time, self._compiled.source_time


def _keys(key: Value, flows: list[InFlow]) -> Keys:
    """Key -> messages; a message without a key is left out."""
    found: Keys = {}
    for flow in flows:
        if text := _text(_value(key, flow)):
            found.setdefault(text, []).append(flow)
    return found


def _value(function: Value, flow: InFlow) -> Any:
    try:
        return function(flow.fields)
    except ExpressionFailed:
        return None


def _text(value: Any) -> str:
    """Ids and keys are texts; a store may return a number. Other values count as absent."""
    if isinstance(value, str):
        return value
    return str(value) if isinstance(value, int | float) and not isinstance(value, bool) else ""


def _missed(batch: Batch, flow: InFlow, rule: Miss, reason: str) -> None:
    if rule == "drop":
        batch.drop(flow, Stage.TRACE, reason)
    elif rule == "delay":
        batch.delay(flow, Stage.TRACE, reason)
