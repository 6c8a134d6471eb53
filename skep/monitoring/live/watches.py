"""What can be watched: kinds with a reader, and how a watch is written. Run by centers.

`runs:state:running` is the list of runs with a filter, `run:NAME` one run. Kinds are handed over
when a center is built; this room knows none by name.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass

from skep.errors import InvalidInput
from skep.model.live import LiveRow
from skep.model.people.scope import EVERYTHING, Scope

Read = Callable[[], Awaitable[Sequence[LiveRow]]]
Open = Callable[[str, Scope], Read]


@dataclass(frozen=True, slots=True)
class WatchKind:
    """`open` checks what follows the name and returns a reader of what is inside a scope; it raises
    InvalidInput."""

    name: str
    open: Open
    #: Whether something must follow the name.
    needs_argument: bool = False


class WatchKinds:
    """The kinds of one center, by name."""

    def __init__(self, kinds: Iterable[WatchKind]) -> None:
        self._kinds = {kind.name: kind for kind in kinds}

    def open(self, watch: str, scope: Scope = EVERYTHING) -> Read:
        """The reader of a watch; raises InvalidInput, which names what is known."""
        name, _, argument = watch.partition(":")
        kind = self._kinds.get(name)
        if kind is None:
            known = ", ".join(self._kinds)
            raise InvalidInput(f"{name[:50]!r} cannot be watched; use one of {known}")
        argument = argument.strip()
        if kind.needs_argument and not argument:
            raise InvalidInput(f"{watch[:50]!r} names no object; write `{name}:NAME`")
        return kind.open(argument, scope)
