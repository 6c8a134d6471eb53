"""The last stage: conditions, records and outputs. A message that one output refuses goes to the
pool for that output alone: those that have accepted it are remembered."""

from __future__ import annotations

from typing import Any

from skep.errors import SkepError
from skep.pipelines.engine.batch import Batch
from skep.pipelines.engine.compiled import CompiledOutput
from skep.pipelines.engine.message import InFlow
from skep.pipelines.engine.outcomes import OUT, Stage
from skep.pipelines.engine.ports import OutputRecord, Outputs, Refusal
from skep.pipelines.expressions.expression import ExpressionFailed
from skep.pipelines.expressions.functions import to_str

_BROKEN = "values of {}: {}"


class WriteStage:
    """The outputs of one pipeline."""

    def __init__(self, outputs: list[CompiledOutput], port: Outputs, on_no_output: str) -> None:
        self._outputs = outputs
        self._port = port
        self._fails_without = on_no_output == "error"

    async def run(self, batch: Batch) -> None:
        flows = batch.open()
        refused: dict[InFlow, list[Refusal]] = {}
        wanted: set[InFlow] = set()
        for output in self._outputs:
            await self._write(output, flows, refused, wanted)
        for flow in flows:
            self._settle(batch, flow, refused.get(flow), flow in wanted)

    async def _write(
        self,
        output: CompiledOutput,
        flows: list[InFlow],
        refused: dict[InFlow, list[Refusal]],
        wanted: set[InFlow],
    ) -> None:
        ready: list[tuple[InFlow, OutputRecord]] = []
        for flow in flows:
            if not output.takes(flow.fields):
                continue
            wanted.add(flow)
            if output.id in flow.done:
                continue
            try:
                ready.append((flow, record_of(output, flow.fields)))
            except (ExpressionFailed, TypeError) as error:
                told = Refusal(_BROKEN.format(output.target, error), permanent=True)
                refused.setdefault(flow, []).append(told)
        if ready:
            await self._send(output, ready, refused)

    async def _send(
        self,
        output: CompiledOutput,
        ready: list[tuple[InFlow, OutputRecord]],
        refused: dict[InFlow, list[Refusal]],
    ) -> None:
        verdicts: list[Refusal | None]
        try:
            answered = await self._port.write(output.target, [record for _, record in ready])
            verdicts = list(answered)
        except SkepError as error:
            verdicts = [Refusal(error.detail)] * len(ready)
        for (flow, _), verdict in zip(ready, verdicts, strict=True):
            if verdict is None:
                flow.done.append(output.id)
            else:
                named = Refusal(f"output {output.target}: {verdict.reason}", verdict.permanent)
                refused.setdefault(flow, []).append(named)

    def _settle(
        self, batch: Batch, flow: InFlow, refused: list[Refusal] | None, wanted: bool
    ) -> None:
        """The worst verdict decides; one that can be retried keeps the message alive."""
        if refused:
            temporary = [one for one in refused if not one.permanent]
            if temporary:
                batch.fail([flow], Stage.OPERATIONS, temporary[0].reason)
            else:
                batch.kill(flow, Stage.OPERATIONS, refused[0].reason)
        elif wanted:
            flow.outcome = OUT
        elif self._fails_without:
            batch.fail([flow], Stage.OPERATIONS, "no output takes the message")
        else:
            batch.drop(flow, Stage.OPERATIONS, "no output takes the message")


def record_of(output: CompiledOutput, fields: dict[str, Any]) -> OutputRecord:
    """What an output gets; raises ExpressionFailed, or TypeError for a key that is not text."""
    values = {name: value(fields) for name, value in output.values.items()}
    ttl: dict[str, float] = {}
    for name, value, seconds in output.fields:
        named = to_str(name(fields))
        if not named:
            raise ExpressionFailed("a field has no name")
        values[named] = value(fields)
        if seconds:
            ttl[named] = seconds
    if not (output.values or output.fields):
        values = fields
    key = to_str(output.key(fields)) if output.key else ""
    if output.key and not key:
        raise ExpressionFailed("the key is empty")
    return OutputRecord(values, key, ttl)
