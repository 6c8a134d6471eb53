"""The engine of a pipeline: a batch of messages goes in, an outcome for each comes out.

It holds no connection: look-ups, queries and outputs are ports. The caller acknowledges the input
after the pool has stored the outcomes that need it, and not before.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

import msgspec

from skep.model.pipelines.document import Pipeline
from skep.pipelines.engine.batch import Batch
from skep.pipelines.engine.compiled import CompiledPipeline
from skep.pipelines.engine.extras import ExtraStage
from skep.pipelines.engine.local_stages import keep_owned, keep_passing, parse
from skep.pipelines.engine.message import Arrived, InFlow
from skep.pipelines.engine.outcomes import Outcome, Tally
from skep.pipelines.engine.ports import Outputs, Queries, Stores
from skep.pipelines.engine.retries import RetryRules
from skep.pipelines.engine.trace import TraceStage
from skep.pipelines.engine.writing import WriteStage
from skep.runtime.clock import Clock


class Ports(msgspec.Struct, frozen=True):
    """Everything outside of the engine."""

    stores: Stores
    queries: Queries
    outputs: Outputs


class Engine:
    """Processes batches of one pipeline."""

    def __init__(self, document: Pipeline, ports: Ports, clock: Clock, random: Random) -> None:
        compiled = CompiledPipeline(document, clock)
        self._compiled = compiled
        self._clock = clock
        self._rules = RetryRules(document.retry, random)
        self._trace = TraceStage(compiled.trace, ports.stores) if compiled.trace else None
        self._extras = [ExtraStage(one, ports.queries) for one in compiled.extras]
        self._writing = WriteStage(compiled.outputs, ports.outputs, document.on_no_output)
        #: Counts since the engine was made.
        self.tally = Tally()

    async def process(self, arrived: Sequence[Arrived]) -> list[Outcome]:
        """One outcome per message, in the same order."""
        self.tally.taken += len(arrived)
        batch = Batch([InFlow(one) for one in arrived], self._rules, self._clock.now())
        parse(batch, self._compiled.inputs)
        keep_passing(batch, self._compiled.filter)
        if self._trace is not None:
            await self._trace.run(batch)
        keep_owned(batch, self._compiled.document.user_id)
        for extra in self._extras:
            await extra.run(batch)
        await self._writing.run(batch)
        outcomes = [flow.outcome for flow in batch.flows if flow.outcome is not None]
        self.tally.count(outcomes)
        return outcomes
