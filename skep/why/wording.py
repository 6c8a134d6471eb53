"""Formats times, durations and counts for users. Pure."""

from __future__ import annotations

from datetime import UTC, datetime

from skep.store.ports.waits import COUNT_LIMIT

_DAY = 86400
_UNITS = ((_DAY, "d"), (3600, "h"), (60, "min"))


def moment(at: float, now: float) -> str:
    """`12:04:05 UTC`, with the date when it is not within half a day."""
    when = datetime.fromtimestamp(at, UTC)
    near = abs(at - now) < _DAY / 2
    return when.strftime("%H:%M:%S UTC" if near else "%Y-%m-%d %H:%M:%S UTC")


def duration(seconds: float) -> str:
    """In a readable unit: `40 s`, `3 min`."""
    for size, unit in _UNITS:
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{max(seconds, 0):.0f} s"


def counted(number: int, noun: str, nouns: str = "") -> str:
    """`1 block`, `2,000 blocks`."""
    return f"{number:,} {noun if number == 1 else nouns or noun + 's'}"


def being(number: int, noun: str) -> str:
    """`1 block is`, `2 blocks are`."""
    return f"{counted(number, noun)} {'is' if number == 1 else 'are'}"


def up_to(number: int, noun: str) -> str:
    """The same for a count that stopped at its limit."""
    more = "at least " if number >= COUNT_LIMIT else ""
    return f"{more}{counted(number, noun)}"


def rate(spacing: float) -> str:
    """`2/s`, or `1 in 5 s` for a slow one."""
    return f"{1 / spacing:.2g}/s" if spacing < 1 else f"1 in {spacing:.3g} s"
