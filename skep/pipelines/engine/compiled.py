"""A pipeline document, compiled: every expression and value is a function. Pure.

It is made once per revision; the stages only call it. A document that passed its check compiles.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from skep.model.pipelines.document import (
    ExtraPart,
    OperationPart,
    OutputPart,
    ParsePart,
    Pipeline,
    TracePart,
)
from skep.pipelines.engine.parsers import Parser, make_parser
from skep.pipelines.expressions.expression import Expression
from skep.pipelines.expressions.values import Value, compile_value
from skep.runtime.clock import Clock

Test = Callable[[dict[str, Any]], bool]


def _condition(text: str, clock: Clock) -> Test | None:
    return Expression(text, clock).test if text else None


class CompiledInput:
    """The parser of one input, and the fields of `common`."""

    def __init__(self, part: ParsePart, clock: Clock) -> None:
        self.parse: Parser = make_parser(part)
        self.common = {name: compile_value(raw, clock) for name, raw in part.common.items()}


class CompiledTrace:
    """The functions of the trace stage."""

    def __init__(self, part: TracePart, clock: Clock) -> None:
        self.part = part
        self.id = Expression(part.id, clock).value
        self.keys = [compile_value(lookup.key, clock) for lookup in part.lookups]
        self.names = [lookup.name or lookup.store for lookup in part.lookups]
        self.record_key = compile_value(part.record.key, clock) if part.record else None
        back = part.write_back
        self.back_key = compile_value(back.key, clock) if back else None
        self.event_time = Expression(back.event_time, clock).value if back else None
        self.source_time = Expression(back.source_time, clock).value if back else None
        #: Look-ups whose result is written back.
        self.found_by = frozenset((back.found_by or self.names[-1:]) if back else ())


class CompiledExtra:
    """The functions of one extra."""

    def __init__(self, part: ExtraPart, clock: Clock) -> None:
        self.part = part
        self.when = _condition(part.when, clock)
        self.arguments: Value = compile_value(part.args.map, clock)
        sources = (("server", part.server), ("method", part.method), ("func", part.func))
        self.kind, self.name = next((kind, name) for kind, name in sources if name)


class CompiledOutput:
    """The functions of one output. `id` names it in the pool, as long as the document has it."""

    def __init__(self, part: OutputPart, place: str, outer: Test | None, clock: Clock) -> None:
        self.target = part.target
        self.id = place
        self.conditions = [one for one in (outer, _condition(part.when, clock)) if one]
        self.key = compile_value(part.key, clock) if part.key else None
        self.values = {name: compile_value(raw, clock) for name, raw in part.values.items()}
        self.fields = [
            (compile_value(one.name, clock), compile_value(one.value, clock), one.ttl)
            for one in part.fields
        ]

    def takes(self, fields: dict[str, Any]) -> bool:
        return all(condition(fields) for condition in self.conditions)


class CompiledPipeline:
    """All functions of a pipeline."""

    def __init__(self, document: Pipeline, clock: Clock) -> None:
        self.document = document
        self.inputs = {
            one.name: CompiledInput(one.parse or document.parse, clock) for one in document.inputs
        }
        self.filter = Expression(document.filter, clock) if document.filter else None
        self.trace = CompiledTrace(document.trace, clock) if document.trace else None
        self.extras = [CompiledExtra(one, clock) for one in document.extras]
        self.outputs = [
            output
            for number, operation in enumerate(document.operations)
            for output in _outputs(operation, number, clock)
        ]


def _outputs(operation: OperationPart, number: int, clock: Clock) -> list[CompiledOutput]:
    outer = _condition(operation.when, clock)
    return [
        CompiledOutput(part, f"{number}.{place}.{part.target}", outer, clock)
        for place, part in enumerate(operation.outputs)
    ]
