"""A kind that an agent does not offer, with the reason. Runs on agents.

Its requests fail immediately with the reason instead of waiting in the agent.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from skep.downloaders.ports import Fetched, Kind
from skep.model.failures.failure_class import FailureClass
from skep.model.request import Outcome, Work
from skep.model.run import RunSettings


class RefusedKind:
    """Replaces a kind that is not offered to centers."""

    schemes: tuple[str, ...] = ()

    def __init__(self, name: str, reason: str) -> None:
        self.name = name
        self.reason = reason

    def open(self, run: str, settings: RunSettings) -> Refusing:  # noqa: ARG002 - as every kind
        return Refusing(self.reason)


class Refusing:
    """Ends every request with the reason."""

    active = 0

    def __init__(self, reason: str) -> None:
        self._reason = reason

    def start(self, work: Work, done: Callable[[Fetched], None]) -> None:
        done(Fetched(Outcome(work.id, failure=FailureClass.CODE, detail=self._reason)))

    async def close(self) -> None:
        """There is nothing to close."""


def offered(kinds: Iterable[Kind]) -> tuple[str, ...]:
    """The names of the kinds that an agent offers to centers."""
    return tuple(kind.name for kind in kinds if not isinstance(kind, RefusedKind))
