"""The period that the charts of a page share, in the URL. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import urlencode

#: Choices of the switch: word in the URL -> seconds.
SPANS = {"15m": 900, "1h": 3600, "6h": 21_600, "24h": 86_400, "7d": 604_800, "30d": 2_592_000}
DEFAULT = "1h"
_LATEST = 1e11


@dataclass(frozen=True, slots=True)
class TimeRange:
    """From `since` to `until`, in seconds since the epoch. `span` is the chosen word, "" for a
    period that was dragged."""

    since: float
    until: float
    span: str = DEFAULT

    @classmethod
    def of(cls, query: Mapping[str, str], now: float) -> TimeRange:
        """From `?from=&to=`, or `?range=1h`; anything else is the default."""
        since, until = _moment(query.get("from", "")), _moment(query.get("to", ""))
        if since is not None and until is not None and since < until:
            return cls(since, until, "")
        span = query.get("range", DEFAULT)
        span = span if span in SPANS else DEFAULT
        return cls(now - SPANS[span], now, span)

    @property
    def seconds(self) -> float:
        return self.until - self.since

    @property
    def query(self) -> str:
        """The part of a URL that repeats it; "" for the default."""
        if not self.span:
            return urlencode({"from": f"{self.since:.0f}", "to": f"{self.until:.0f}"})
        return "" if self.span == DEFAULT else f"range={self.span}"


def _moment(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if 0 <= value <= _LATEST else None
