"""The stages that ask nothing of the outside: parse, filter and owner. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from skep.pipelines.engine.batch import Batch
from skep.pipelines.engine.compiled import CompiledInput
from skep.pipelines.engine.message import InFlow
from skep.pipelines.engine.outcomes import Stage
from skep.pipelines.engine.parsers import Unreadable
from skep.pipelines.expressions.expression import Expression, ExpressionFailed


def parse(batch: Batch, inputs: Mapping[str, CompiledInput]) -> None:
    """Fill the fields of each message; one that cannot be read is dead."""
    for flow in batch.flows:
        source = inputs.get(flow.arrived.input)
        if source is None:
            told = f"the pipeline has no input {flow.arrived.input!r}"
            batch.kill(flow, Stage.PARSE, told)
            continue
        try:
            _read(flow, source)
        except (Unreadable, ExpressionFailed) as error:
            batch.kill(flow, Stage.PARSE, str(error))


def _read(flow: InFlow, source: CompiledInput) -> None:
    flow.fields = fields = source.parse(flow.arrived.body)
    if source.common:
        fields["common"] = {name: value(fields) for name, value in source.common.items()}


def keep_passing(batch: Batch, condition: Expression | None) -> None:
    """Drop messages for which the filter is not true."""
    if condition is None:
        return
    before = condition.errors.total()
    failed = [flow for flow in batch.open() if not condition.test(flow.fields)]
    errors = condition.errors.total() > before
    for flow in failed:
        batch.drop(flow, Stage.FILTER, _why(condition, flow) if errors else "filter")


def _why(condition: Expression, flow: InFlow) -> str:
    try:
        condition.value(flow.fields)
    except ExpressionFailed as error:
        return str(error)
    return "filter"


def keep_owned(batch: Batch, user_id: str) -> None:
    """Drop messages of other users."""
    if not user_id:
        return
    for flow in batch.open():
        trace = flow.fields.get("trace")
        owner = trace.get("dmp_user_id") if isinstance(trace, dict) else None
        if owner is None or str(owner) != user_id:
            batch.drop(flow, Stage.OWNER, "another owner")
