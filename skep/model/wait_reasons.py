"""Why work waits: reasons as sentences for users and as codes for programs.

Pure data; created by centers (`why`), shown by the command line.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

Kind = Literal["request", "block", "run", "job", "site"]


class Reason(msgspec.Struct, frozen=True):
    """One reason why something waits."""

    #: A stable code; `docs/how-to/why.md` lists them all.
    code: str
    #: A sentence for users.
    text: str
    #: What ends the wait; "" when nothing has to.
    frees: str = ""
    #: When that happens automatically, as an estimate; None = unknown.
    until: float | None = None
    #: A command that ends the wait.
    do: tuple[str, ...] = ()
    #: The numbers and names in the sentence.
    facts: dict[str, Any] = msgspec.field(default_factory=dict)


class Why(msgspec.Struct, frozen=True):
    """All reasons why one thing waits, the most decisive first."""

    kind: Kind
    id: str
    #: Its state, as a word.
    state: str
    #: Whether it waits for the first reason; False when it makes progress or has ended.
    waiting: bool
    reasons: list[Reason]
    #: The run that it belongs to; "" when it belongs to none.
    run: str = ""
    #: Further identification, such as the URI of a request.
    title: str = ""
