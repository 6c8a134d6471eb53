"""Short functions for the store's conformance suite: leased blocks and reports about them.

Used by tests only.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from skep.model.block import BlockReport, Leased
from skep.model.request import Outcome, Work
from skep.store.ports import Store
from skep.store.ports.blocks import Placed, RetryRule, Settlement
from skep.testing.conformance.store.ground import NOW

NOWHERE = Placed()

_works = msgspec.msgpack.Decoder(list[Work])


def works(block: Leased) -> list[Work]:
    return _works.decode(block.body)


def ids(block: Leased) -> list[int]:
    return [work.id for work in works(block)]


def done(numbers: Iterable[int]) -> list[Outcome]:
    return [Outcome(number, status=200) for number in numbers]


def failed(numbers: Iterable[int], failure: str = "timeout") -> list[Outcome]:
    return [Outcome(number, failure=failure, detail="no answer") for number in numbers]


def settlement(
    block: Leased,
    outcomes: Sequence[Outcome],
    again_at: Mapping[int, float] | None = None,
    *,
    agent: str = "agent",
    token: int | None = None,
    final: bool = True,
    frames: bytes = b"",
    placed: Placed = NOWHERE,
) -> Settlement:
    held = block.token if token is None else token
    report = BlockReport(block.id, held, list(outcomes), final, frames)
    return Settlement(report, agent, RetryRule(dict(again_at or {})), placed)


async def settle(store: Store, *settlements: Settlement, now: float = NOW) -> list[str]:
    """The verdicts, as text."""
    return [verdict.verdict for verdict in await store.blocks.settle(settlements, now)]
