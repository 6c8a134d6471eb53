"""Charts as shapes for SVG, rendered on the server. Pure.

A chart has lines over one period. Each point has a band with its values as a tooltip, and the
same values are in a table beside it, so nothing is told by color or by a script alone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from skep.portal.show.numbers import NONE, number

WIDTH, HEIGHT, PAD = 600.0, 120.0, 4.0
#: Points of a small chart in a card.
SMALL = 60
Format = Callable[[float | None], str]


@dataclass(frozen=True, slots=True)
class Series:
    """One line: its name for people, its look (a class) and its values; None = no figures."""

    label: str
    points: Sequence[float | None]
    look: str = "run"


@dataclass(frozen=True, slots=True)
class Line:
    label: str
    look: str
    path: str
    area: str
    latest: str


@dataclass(frozen=True, slots=True)
class Band:
    """A point of time: where it is, its time, and the value of each line."""

    x: float
    width: float
    iso: str
    time: str
    values: tuple[str, ...]

    @property
    def title(self) -> str:
        return f"{self.time} · {' · '.join(self.values)}"


@dataclass(frozen=True, slots=True)
class ChartShape:
    """Everything that the macro `chart` draws."""

    width: float
    height: float
    lines: tuple[Line, ...]
    bands: tuple[Band, ...]
    top: str
    since: int
    until: int

    @property
    def marks(self) -> tuple[Band, ...]:
        """Points of time that the axis names: first, middle, last."""
        if len(self.bands) < len(("first", "middle", "last")):
            return self.bands
        return (self.bands[0], self.bands[len(self.bands) // 2], self.bands[-1])

    @property
    def is_empty(self) -> bool:
        return not any(line.path for line in self.lines)


def chart(
    since: float, step: float, series: Sequence[Series], shown: Format = number
) -> ChartShape:
    """Lines from `since` on, with `step` seconds between two points."""
    count = max((len(one.points) for one in series), default=0)
    values = [value for one in series for value in one.points if value is not None]
    top = max(values, default=0.0) or 1.0
    lines = tuple(_line(one, count, top, shown) for one in series)
    bands = tuple(_band(at, count, since, step, series, shown) for at in range(count))
    until = int(since + step * count)
    return ChartShape(WIDTH, HEIGHT, lines, bands, shown(top), int(since), until)


def _line(one: Series, count: int, top: float, shown: Format) -> Line:
    pieces = _pieces(one.points, count, top)
    path = "".join(_joined(piece) for piece in pieces)
    area = "".join(
        f"M{piece[0][0]:g} {HEIGHT:g}L{_joined(piece)[1:]}L{piece[-1][0]:g} {HEIGHT:g}z"
        for piece in pieces
    )
    known = [value for value in one.points if value is not None]
    return Line(one.label, one.look, path, area, shown(known[-1]) if known else NONE)


def _pieces(
    points: Sequence[float | None], count: int, top: float
) -> list[list[tuple[float, float]]]:
    """Runs of known values: a gap stays a gap."""
    pieces: list[list[tuple[float, float]]] = [[]]
    for at, value in enumerate(points):
        if value is None:
            pieces.append([])
        else:
            y = HEIGHT - PAD - (HEIGHT - 2 * PAD) * max(value, 0.0) / top
            pieces[-1].append((round(_x(at, count), 1), round(y, 1)))
    return [piece for piece in pieces if piece]


def _joined(piece: Sequence[tuple[float, float]]) -> str:
    """A single point is a line of no length, which round ends show as a dot."""
    points = piece if len(piece) > 1 else [*piece, *piece]
    return "M" + "L".join(f"{x:g} {y:g}" for x, y in points)


def _x(at: int, count: int) -> float:
    return WIDTH * at / max(count - 1, 1)


def _band(
    at: int, count: int, since: float, step: float, series: Sequence[Series], shown: Format
) -> Band:
    width = WIDTH / max(count, 1)
    when = datetime.fromtimestamp(since + at * step, UTC)
    values = tuple(
        f"{one.label} {shown(one.points[at] if at < len(one.points) else None)}".strip()
        for one in series
    )
    iso, time = when.strftime("%Y-%m-%dT%H:%M:%SZ"), when.strftime("%Y-%m-%d %H:%M:%S UTC")
    return Band(round(at * width, 2), round(width, 2), iso, time, values)


def trend(points: Sequence[float | None]) -> float | None:
    """The change of the newer half against the older, as a share; None = not comparable."""
    known = [value for value in points if value is not None]
    half = len(known) // 2
    before, after = known[:half], known[half:]
    if not before or not sum(before):
        return None
    return (sum(after) / len(after)) / (sum(before) / len(before)) - 1
