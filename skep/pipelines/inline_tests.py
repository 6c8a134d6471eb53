"""Runs the tests of a pipeline document: messages in, given answers, expected outcomes.

Nothing outside is asked: stores, queries and outputs are doubles that the test describes. The time
is the time of the test.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from random import Random
from typing import Any

import msgspec

from skep.model.pipelines.document import CasePart, ExpectedOutput, Pipeline, TestPart
from skep.pipelines.engine.engine import Engine, Ports
from skep.pipelines.engine.message import Arrived
from skep.pipelines.engine.outcomes import Outcome
from skep.pipelines.engine.ports import (
    Abandon,
    Answer,
    Delay,
    Failed,
    Found,
    OutputRecord,
    Refusal,
)


class CaseResult(msgspec.Struct, frozen=True):
    """The result of one case; it passed when there are no problems."""

    test: str
    #: Counts from 1.
    case: int
    problems: tuple[str, ...] = ()


class TestClock:
    """The time of a test stands still."""

    __test__ = False  # pytest takes it for a test otherwise

    def __init__(self, now: float) -> None:
        self._now = now

    def now(self) -> float:
        return self._now

    def monotonic(self) -> float:
        return self._now

    async def sleep(self, seconds: float) -> None:  # noqa: ARG002 - the contract of a clock
        return None


class GivenStores:
    """Stores with the entries of a test; what is put can be read by later cases."""

    def __init__(self, stores: Mapping[str, Mapping[str, Any]]) -> None:
        self._stores = {name: dict(entries) for name, entries in stores.items()}

    async def get(self, store: str, keys: Sequence[str]) -> Mapping[str, Any]:
        entries = self._stores.get(store, {})
        return {key: entries[key] for key in keys if key in entries}

    async def put(self, store: str, entries: Mapping[str, str], ttl: float) -> None:  # noqa: ARG002
        self._stores.setdefault(store, {}).update(entries)


class GivenAnswers:
    """Queries with the answers of a test."""

    def __init__(self, answers: Mapping[str, Any]) -> None:
        self._answers = answers

    async def ask(self, kind: str, name: str, asked: Sequence[dict[str, Any]]) -> Sequence[Answer]:
        if name not in self._answers:
            return [Failed(f"the test has no answer of {kind} {name}")] * len(asked)
        return [_answer(self._answers[name])] * len(asked)


def _answer(given: Any) -> Answer:
    match given:
        case {"delay": int() | float() as seconds} if len(given) == 1:
            return Delay(seconds)
        case {"abandon": str() as reason} if len(given) == 1:
            return Abandon(reason)
        case {"error": str() as reason} if len(given) == 1:
            return Failed(reason)
    return Found(given)


class SeenOutputs:
    """Outputs that remember what they got; some refuse everything."""

    def __init__(self, broken: Mapping[str, str]) -> None:
        self._broken = broken
        self.seen: list[tuple[str, OutputRecord]] = []

    async def write(self, target: str, records: Sequence[OutputRecord]) -> Sequence[Refusal | None]:
        if target in self._broken:
            return [Refusal(self._broken[target])] * len(records)
        self.seen += [(target, record) for record in records]
        return [None] * len(records)


async def run_tests(pipeline: Pipeline) -> list[CaseResult]:
    """The result of every case, in order."""
    return [result for test in pipeline.tests for result in await _run(pipeline, test)]


async def _run(pipeline: Pipeline, test: TestPart) -> list[CaseResult]:
    outputs = SeenOutputs(test.broken)
    ports = Ports(GivenStores(test.stores), GivenAnswers(test.answers), outputs)
    engine = Engine(pipeline, ports, TestClock(test.now), Random(0))  # noqa: S311 - nothing secret
    results = []
    for number, case in enumerate(test.cases, 1):
        outputs.seen.clear()
        [outcome] = await engine.process([_arrived(pipeline, case)])
        problems = (*_outcome_problems(case, outcome), *_output_problems(case, outputs.seen))
        results.append(CaseResult(test.name, number, problems))
    return results


def _arrived(pipeline: Pipeline, case: CasePart) -> Arrived:
    inputs = {one.name: one for one in pipeline.inputs}
    source = inputs.get(case.input, pipeline.inputs[0])
    if case.raw is not None:
        return Arrived(case.raw.encode(), source.name)
    packed = (source.parse or pipeline.parse).kind == "msgpack"
    encode = msgspec.msgpack.encode if packed else msgspec.json.encode
    return Arrived(encode(case.message), source.name)


def _outcome_problems(case: CasePart, outcome: Outcome) -> Iterator[str]:
    if outcome.kind != case.outcome:
        why = f" ({outcome.stage}: {outcome.reason})" if outcome.reason else ""
        yield f"outcome is {outcome.kind}{why}; expected {case.outcome}"
        return
    if case.stage and outcome.stage != case.stage:
        yield f"stage is {outcome.stage}; expected {case.stage}"
    if case.reason not in outcome.reason:
        yield f"reason is {outcome.reason!r}; expected {case.reason!r} in it"


def _output_problems(case: CasePart, seen: Sequence[tuple[str, OutputRecord]]) -> Iterator[str]:
    if case.outputs is None:
        return
    left = list(seen)
    for wanted in case.outputs:
        got = next(((t, record) for t, record in left if t == wanted.target), None)
        if got is None:
            yield f"output {wanted.target}: nothing was written"
            continue
        left.remove(got)
        yield from _record_problems(wanted, got[1])
    for target, record in left:
        yield f"output {target}: not expected: {msgspec.json.encode(record.values).decode()}"


def _record_problems(wanted: ExpectedOutput, record: OutputRecord) -> Iterator[str]:
    if wanted.key and record.key != wanted.key:
        yield f"output {wanted.target}: the key is {record.key!r}; expected {wanted.key!r}"
    for name, value in wanted.values.items():
        if name not in record.values:
            yield f"output {wanted.target}: {name} is absent; expected {value!r}"
        elif record.values[name] != value:
            told = f"{name} is {record.values[name]!r}; expected {value!r}"
            yield f"output {wanted.target}: {told}"
