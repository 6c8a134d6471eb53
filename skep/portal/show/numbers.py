"""Numbers, bytes, rates, durations and shares as short texts. Pure."""

from __future__ import annotations

_BYTES = ("B", "KB", "MB", "GB", "TB", "PB")
_STEP = 1000.0
NONE = "\N{EN DASH}"


def number(value: float | None) -> str:
    """`2,418,306`; a fraction keeps three digits."""
    if value is None:
        return NONE
    if isinstance(value, int) or value == int(value):
        return f"{int(value):,}"
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"  # noqa: PLR2004


def rate(value: float | None) -> str:
    """A number per second without its unit; nothing moves: a dash."""
    return number(value) if value else NONE


def size(value: float | None) -> str:
    """`1.2 GB`."""
    if value is None:
        return NONE
    left, unit = float(value), _BYTES[0]
    for unit in _BYTES:  # noqa: B007 - the last unit is used
        if abs(left) < _STEP:
            break
        left /= _STEP
    return f"{left:.0f} {unit}" if unit == _BYTES[0] else f"{left:.3g} {unit}"


def share(part: float, whole: float) -> str:
    """`97.6 %`; never 0 % or 100 % for something that is not."""
    if not whole:
        return f"0{_THIN}%"
    value = 100 * part / whole
    shown = f"{value:.1f}"
    if shown == "100.0" and part < whole:
        shown = "99.9"
    if shown == "0.0" and part > 0:
        shown = "0.1"
    return f"{shown.removesuffix('.0')}{_THIN}%"


def duration(seconds: float | None) -> str:
    """`41 s`, `5 min`, `3 h`, `2 d`; below ten seconds with digits."""
    if seconds is None:
        return NONE
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 10:  # noqa: PLR2004
        return f"{seconds:.3g} s"
    for length, unit in ((86_400, "d"), (3600, "h"), (60, "min")):
        if seconds >= 2 * length:
            return f"{seconds / length:.0f} {unit}"
    return f"{seconds:.0f} s"


_THIN = "\N{NARROW NO-BREAK SPACE}"
