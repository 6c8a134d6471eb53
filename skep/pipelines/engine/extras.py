"""The extras stage: fills fields by queries. One question per batch and set of arguments, and
answers are reused for their period. The cache is bounded."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

import msgspec

from skep.errors import SkepError
from skep.pipelines.engine.batch import Batch
from skep.pipelines.engine.compiled import CompiledExtra
from skep.pipelines.engine.message import InFlow
from skep.pipelines.engine.outcomes import Stage
from skep.pipelines.engine.ports import Abandon, Answer, Delay, Failed, Found, Queries
from skep.pipelines.expressions.expression import ExpressionFailed

#: Answers that one extra keeps.
CACHE_LIMIT = 10_000
#: What a value raises that JSON cannot hold, such as an integer of 100 bits.
_UNWRITABLE = (OverflowError, TypeError, ValueError, RecursionError)
Asked = dict[bytes, tuple[dict[str, Any], list[InFlow]]]


class ExtraStage:
    """One extra of a pipeline, with its cache."""

    def __init__(self, compiled: CompiledExtra, queries: Queries) -> None:
        self._compiled = compiled
        self._queries = queries
        self._cache: OrderedDict[bytes, tuple[float, Found]] = OrderedDict()

    async def run(self, batch: Batch) -> None:
        asked = self._questions(batch)
        for key in [key for key in asked if self._cached(key, batch.now)]:
            _, flows = asked.pop(key)
            self._answered(batch, flows, self._cache[key][1])
        if asked:
            await self._ask(batch, asked)

    def _questions(self, batch: Batch) -> Asked:
        asked: Asked = {}
        when = self._compiled.when
        for flow in batch.open():
            if when is not None and not when(flow.fields):
                continue
            try:
                arguments = self._compiled.arguments(flow.fields)
                key = msgspec.json.encode(arguments)
            except (ExpressionFailed, *_UNWRITABLE) as error:
                told = f"arguments of {self._compiled.part.field}: {error}"
                batch.kill(flow, Stage.EXTRAS, told)
                continue
            asked.setdefault(key, (arguments, []))[1].append(flow)
        return asked

    def _cached(self, key: bytes, now: float) -> bool:
        until, _ = self._cache.get(key, (0.0, None))
        return until > now

    async def _ask(self, batch: Batch, asked: Asked) -> None:
        questions = [arguments for arguments, _ in asked.values()]
        one = self._compiled
        try:
            answers = await self._queries.ask(one.kind, one.name, questions)
        except SkepError as error:
            for _, flows in asked.values():
                batch.fail(flows, Stage.EXTRAS, f"{one.kind} {one.name}: {error.detail}")
            return
        for (key, (_, flows)), answer in zip(asked.items(), answers, strict=True):
            kept = self._cut(answer)
            self._keep(key, kept, batch.now)
            self._answered(batch, flows, kept)

    def _cut(self, answer: Answer) -> Answer:
        """Only the wanted fields of an answer."""
        keys = self._compiled.part.args.keys
        if not (keys and isinstance(answer, Found)):
            return answer
        if not isinstance(answer.value, dict):
            return Failed(f"the answer has no fields; wanted: {', '.join(keys)}")
        return Found({key: answer.value.get(key) for key in keys})

    def _keep(self, key: bytes, answer: Answer, now: float) -> None:
        period = self._compiled.part.args.period
        if period and isinstance(answer, Found):
            self._cache[key] = (now + period, answer)
            self._cache.move_to_end(key)
            while len(self._cache) > CACHE_LIMIT:
                self._cache.popitem(last=False)

    def _answered(self, batch: Batch, flows: list[InFlow], answer: Answer) -> None:
        name = self._compiled.part.field
        match answer:
            case Found(value):
                for flow in flows:
                    flow.fields[name] = value
            case Delay(seconds, expires):
                for flow in flows:
                    batch.delay(flow, Stage.EXTRAS, f"{name} is not there yet", seconds, expires)
            case Abandon(reason):
                for flow in flows:
                    batch.drop(flow, Stage.EXTRAS, reason)
            case Failed(reason):
                batch.fail(flows, Stage.EXTRAS, f"{name}: {reason}")
