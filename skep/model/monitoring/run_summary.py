"""The summary of an ended run, for comparison with earlier runs of its job. Pure data."""

from __future__ import annotations

import msgspec

#: Fields of items that a summary has at most, by name.
FIELDS_LIMIT = 100


class RunSummary(msgspec.Struct, frozen=True):
    """The figures of one ended run."""

    run: str
    job: str
    ended_at: float
    #: Requests by their end.
    done: int = 0
    dead: int = 0
    #: Attempts with an answer.
    answers: int = 0
    items: int = 0
    #: Mean bytes of an answer.
    page_size: float = 0.0
    #: Share of answers by HTTP status.
    statuses: dict[str, float] = msgspec.field(default_factory=dict)
    #: Share of the sampled items in which a field has a value.
    fields: dict[str, float] = msgspec.field(default_factory=dict)


class Finding(msgspec.Struct, frozen=True):
    """A figure of a run that differs from its history."""

    #: items, page_size, status or field.
    figure: str
    #: The status or the field; empty for others.
    name: str
    value: float
    usual: float
    #: 1.0 = at the limit; larger = more unusual.
    score: float
