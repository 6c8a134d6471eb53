"""The figures of the overview with their charts: requests, bytes, latency, failure rate."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from skep.portal.page import PageCall
from skep.portal.panels import Refused
from skep.portal.show.charts import ChartShape, Series, chart, trend
from skep.portal.show.numbers import duration, number, share, size
from skep.wire.api.monitoring.series import Chart, WhichSeries

Points = Sequence[float | None]
NAMES = "requests.done,requests.failed,latency,bytes.received"
#: Points of a chart in a card.
POINTS = 60
#: A larger share of failed answers is marked.
MUCH = 0.02
#: The quantile that the card shows.
QUANTILE = "p90"


@dataclass(frozen=True, slots=True)
class Card:
    """A figure with its chart."""

    key: str
    value: str
    unit: str
    shape: ChartShape
    #: Change of the second half of the period against the first, as text; "" = not comparable.
    change: str = ""
    attention: bool = False


def asked_series(call: PageCall) -> WhichSeries:
    since, until = call.range.since, call.range.until
    return WhichSeries(NAMES, "", since, until, int((until - since) / POINTS))


def cards_of(call: PageCall, found: Chart | Refused) -> list[Card] | Refused:
    """The cards, or why there are none."""
    if isinstance(found, Refused):
        return found
    points = {(line.name, line.label): line.points for line in found.lines}
    done = points.get(("requests.done", ""), [])
    failed = points.get(("requests.failed", ""), [])
    rates = [_failed_share(one, other) for one, other in zip(done, failed, strict=False)]
    received = points.get(("bytes.received", ""), [])
    latency = points.get(("latency", QUANTILE), [])
    return [
        _card(call, found, "overview.card_requests", done, number, "/s"),
        _card(call, found, "overview.card_received", received, size, "/s"),
        _card(call, found, "overview.card_latency", latency, duration),
        _card(call, found, "overview.card_failures", rates, _percent, limit=MUCH),
    ]


def _card(
    call: PageCall,
    found: Chart,
    key: str,
    points: Points,
    shown: Callable[[float | None], str],
    after: str = "",
    limit: float | None = None,
) -> Card:
    newest = _newest(points)
    attention = limit is not None and newest is not None and newest > limit
    look = "bad" if attention else "run"
    shape = chart(found.since, found.step, [Series(call.texts.plain(key), points, look)], shown)
    value, _, unit = shown(newest).replace("\N{NARROW NO-BREAK SPACE}", " ").partition(" ")
    unit = f"{unit}{after}" if newest is not None else ""
    return Card(key, value, unit, shape, _change(points), attention)


def _percent(value: float | None) -> str:
    return number(None) if value is None else share(value, 1)


def _failed_share(done: float | None, failed: float | None) -> float | None:
    whole = (done or 0) + (failed or 0)
    if done is None and failed is None:
        return None
    return (failed or 0) / whole if whole else 0.0


def _newest(points: Points) -> float | None:
    """The newest value that is known; the last interval may still be filling."""
    return next((value for value in reversed(points) if value is not None), None)


def _change(points: Points) -> str:
    found = trend(points)
    if found is None:
        return ""
    percent = round(100 * found)
    return f"{percent:+d}\N{NARROW NO-BREAK SPACE}%" if percent else "±0"
