"""Windows over keyed values: by count or by event time, tumbling or sliding. Pure state machines.

A window is made of panes as wide as its slide, and a pane keeps an aggregate, not the values. So
the memory of a key depends on the window and never on the number of messages. The time is the time
of the events; `state` and `restore` make a machine as durable as the place that keeps its state.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

#: Keys with an open window in one machine.
KEY_LIMIT = 100_000


class Aggregate(msgspec.Struct, frozen=True):
    """What is known of a set of numbers."""

    count: int = 0
    total: float = 0.0
    least: float | None = None
    most: float | None = None

    def with_value(self, value: float) -> Aggregate:
        return self.merged(Aggregate(1, value, value, value))

    def merged(self, other: Aggregate) -> Aggregate:
        least = [one for one in (self.least, other.least) if one is not None]
        most = [one for one in (self.most, other.most) if one is not None]
        return Aggregate(
            self.count + other.count,
            self.total + other.total,
            min(least, default=None),
            max(most, default=None),
        )


class Closed(msgspec.Struct, frozen=True):
    """A complete window. `start` and `end` are times, or numbers of messages of the key."""

    key: str
    start: float
    end: float
    result: Aggregate


class WindowRefused(ValueError):
    """A value that no window takes; the text is the reason."""


def _merge(panes: Iterable[Aggregate]) -> Aggregate:
    merged = Aggregate()
    for pane in panes:
        merged = merged.merged(pane)
    return merged


class CountWindows:
    """A window of the last `size` values of a key, every `slide` values."""

    def __init__(self, size: int, slide: int = 0, key_limit: int = KEY_LIMIT) -> None:
        """`slide` 0: as wide as the window. Raises ValueError if `size` is not a multiple."""
        self._slide = slide or size
        self._panes = _panes_of(size, self._slide)
        self._size = size
        self._key_limit = key_limit
        #: Key -> number of values, complete panes, and the open one.
        self._keys: dict[str, tuple[int, tuple[Aggregate, ...], Aggregate]] = {}

    def add(self, key: str, value: float) -> list[Closed]:
        """The window that this value completes; raises WindowRefused for one key too many."""
        count, panes, current = self._keys.get(key, (0, (), Aggregate()))
        if not count and len(self._keys) >= self._key_limit:
            raise WindowRefused(f"more than {self._key_limit} keys have an open window")
        count, current = count + 1, current.with_value(value)
        closed = []
        if current.count == self._slide:
            panes, current = (*panes, current)[-self._panes :], Aggregate()
            if len(panes) == self._panes:
                closed = [Closed(key, count - self._size, count, _merge(panes))]
        self._keys[key] = (count, panes, current)
        return closed

    def state(self) -> bytes:
        return msgspec.json.encode(self._keys)

    def restore(self, state: bytes) -> None:
        kind = dict[str, tuple[int, tuple[Aggregate, ...], Aggregate]]
        self._keys = msgspec.json.decode(state, type=kind)


class _TimeState(msgspec.Struct):
    """Everything that time windows remember."""

    #: Windows that end at this number of slides, or earlier, are complete.
    closed: int | None = None
    #: Key -> number of the pane -> aggregate.
    panes: dict[str, dict[int, Aggregate]] = msgspec.field(default_factory=dict)


class TimeWindows:
    """Windows of `size` seconds every `slide` seconds, by the time of events.

    The watermark is the newest event minus `lateness`. A window that ends before it is complete;
    an event all of whose windows are complete is late.
    """

    def __init__(
        self,
        size: float,
        slide: float = 0.0,
        lateness: float = 0.0,
        ahead: float = 3600.0,
        key_limit: int = KEY_LIMIT,
    ) -> None:
        """`ahead`: an event that is more seconds in the future is refused, because it would make
        all others late."""
        self._slide = slide or size
        self._width = _panes_of(size, self._slide)
        self._lateness = lateness
        self._ahead = ahead
        self._key_limit = key_limit
        self._state = _TimeState()

    def add(self, key: str, time: float, value: float, now: float) -> list[Closed]:
        """The windows that this event completes; raises WindowRefused for one that is late, in
        the future, or of one key too many."""
        if not time <= now + self._ahead:  # also NaN
            raise WindowRefused("the event is in the future")
        pane = int(time // self._slide)
        state = self._state
        if state.closed is not None and pane + self._width <= state.closed:
            raise WindowRefused("the event is late")
        if key not in state.panes and len(state.panes) >= self._key_limit:
            raise WindowRefused(f"more than {self._key_limit} keys have an open window")
        panes = state.panes.setdefault(key, {})
        panes[pane] = panes.get(pane, Aggregate()).with_value(value)
        return self.advance(time)

    def advance(self, time: float) -> list[Closed]:
        """Complete the windows that end before `time` minus the lateness, oldest first."""
        reached = int((time - self._lateness) // self._slide)
        before = self._state.closed
        if before is not None and reached <= before:
            return []
        self._state.closed = reached
        found = [
            closed
            for key, panes in self._state.panes.items()
            for closed in self._complete(key, panes, before, reached)
        ]
        self._forget(reached)
        return sorted(found, key=lambda one: (one.end, one.key))

    def _complete(
        self, key: str, panes: dict[int, Aggregate], before: int | None, reached: int
    ) -> list[Closed]:
        ends = {pane + step for pane in panes for step in range(1, self._width + 1)}
        due = [end for end in ends if end <= reached and (before is None or end > before)]
        return [self._closed(key, panes, end) for end in due]

    def _closed(self, key: str, panes: dict[int, Aggregate], end: int) -> Closed:
        first = end - self._width
        inside = [panes[number] for number in range(first, end) if number in panes]
        return Closed(key, first * self._slide, end * self._slide, _merge(inside))

    def _forget(self, reached: int) -> None:
        for key, panes in list(self._state.panes.items()):
            for number in [one for one in panes if one + self._width <= reached]:
                del panes[number]
            if not panes:
                del self._state.panes[key]

    def state(self) -> bytes:
        return msgspec.json.encode(self._state)

    def restore(self, state: bytes) -> None:
        self._state = msgspec.json.decode(state, type=_TimeState)


#: Panes of one window; more would make every completed window slow.
_MOST_PANES = 1000


def _panes_of(size: float, slide: float) -> int:
    count = round(size / slide) if slide > 0 else 0
    if not 1 <= count <= _MOST_PANES or abs(count * slide - size) > slide * 1e-9:
        told = (
            f"a window of {size:g} cannot slide by {slide:g}: it must be 1 to {_MOST_PANES} times"
        )
        raise ValueError(f"{told} as wide as its slide")
    return count
