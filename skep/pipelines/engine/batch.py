"""One batch on its way through the stages: its messages, its moment, and how outcomes are set."""

from __future__ import annotations

from collections.abc import Iterable

from skep.pipelines.engine.message import InFlow
from skep.pipelines.engine.outcomes import Kind, Outcome, Stage
from skep.pipelines.engine.retries import RetryRules


class Batch:
    """The stages of a batch share one moment, so that its messages are judged alike."""

    def __init__(self, flows: list[InFlow], rules: RetryRules, now: float) -> None:
        self.flows = flows
        self.now = now
        self._rules = rules

    def open(self) -> list[InFlow]:
        """Messages without an outcome."""
        return [flow for flow in self.flows if flow.outcome is None]

    def drop(self, flow: InFlow, stage: Stage, reason: str) -> None:
        flow.outcome = Outcome(Kind.DROPPED, stage, reason, errors=flow.arrived.errors)

    def kill(self, flow: InFlow, stage: Stage, reason: str) -> None:
        flow.outcome = self._rules.dead(flow, stage, reason)

    def fail(self, flows: Iterable[InFlow], stage: Stage, reason: str) -> None:
        for flow in flows:
            flow.outcome = self._rules.failed(flow, stage, reason, self.now)

    def delay(
        self, flow: InFlow, stage: Stage, reason: str, after: float = 0.0, expires: float = 0.0
    ) -> None:
        flow.outcome = self._rules.delayed(flow, stage, reason, self.now, after, expires)
