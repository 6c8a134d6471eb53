"""Blocks for all agents of a run: the first that asks takes one. Pure.

The strategies `any` and `fixed` place by it.
"""

from __future__ import annotations

from skep.store.ports.placement import Wanted


class Shared:
    """The first agent of the run that asks takes the block."""

    by_session = False
    chained = False

    def __init__(self, target: str) -> None:
        self._target = target

    def target(self, wanted: Wanted) -> str | None:  # noqa: ARG002 - all are alike
        return self._target
