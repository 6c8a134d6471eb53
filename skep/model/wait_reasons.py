"""Why something does not run: reasons as people read them and as programs sort them.

Pure data; made by centers (`why`), shown by the command line.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

Kind = Literal["request", "block", "run", "job", "site"]


class Reason(msgspec.Struct, frozen=True):
    """One thing that is waited for."""

    #: A stable word; `docs/how-to/why.md` lists them all.
    code: str
    #: A sentence for people.
    text: str
    #: What will free it, for people; "" when nothing has to.
    frees: str = ""
    #: When that happens by itself, as far as anybody can tell; None = nobody can.
    until: float | None = None
    #: What a person can type to free it.
    do: tuple[str, ...] = ()
    #: The numbers and names in the sentence.
    facts: dict[str, Any] = msgspec.field(default_factory=dict)


class Why(msgspec.Struct, frozen=True):
    """Everything that keeps one thing from going on, most decisive first."""

    kind: Kind
    id: str
    #: Its state, as a word.
    state: str
    #: It waits, and the first reason says for what; False when it goes on or has ended.
    waiting: bool
    reasons: list[Reason]
    #: The run that it belongs to, "" when it is no part of one.
    run: str = ""
    #: What else to know it by, such as the address of a request.
    title: str = ""
