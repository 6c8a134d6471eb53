"""Places rooms and lines in layers, from top to bottom: the position of each box and line. Pure.

A line that passes a layer gets a narrow place between the boxes there; lines to the same room share
it. The order inside a layer minimizes crossings and lengths. The same input always gives the same
picture: there is no randomness.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations, pairwise

from tools.drawing.style import wrapped

#: Pixels: width of the place of a passing line, space between boxes, between layers.
PASSAGE = 15.0
BETWEEN = 10.0
DROP = 27.0
PADDING = 10.0
LINE_HEIGHT = 14.0
NAME_HEIGHT = 17.0
#: Minimum space between the ends of two lines, and from there to the corner of a box.
APART = 13.0
CORNER = 16.0
#: The cost of a crossing in pixels of detour, and the factor for a bend of a passing line.
CROSSING = 400.0
LONG_LINE = 1.0
#: Maximum number of changes to the first order.
CHANGES = 200


@dataclass(frozen=True, slots=True, order=True)
class Node:
    """A room in its layer, or the place where lines to a room pass a layer."""

    layer: int
    room: str
    passing: bool = False


@dataclass(frozen=True, slots=True)
class Box:
    """A rectangle; that of passing lines has no height."""

    x: float
    y: float
    width: float
    height: float

    @property
    def middle(self) -> float:
        return self.x + self.width / 2

    @property
    def bottom(self) -> float:
        return self.y + self.height


Segment = tuple[Node, Node]
Rows = list[list[Node]]


@dataclass(frozen=True, slots=True)
class Curve:
    """From the bottom of one node to the top of a node in the next layer."""

    x1: float
    y1: float
    x2: float
    y2: float
    ends: bool


@dataclass(frozen=True, slots=True)
class Layout:
    boxes: dict[str, Box]
    lines: dict[str, list[str]]
    curves: list[Curve]
    passages: list[Box]
    height: float


def place(
    layers: Sequence[Sequence[str]],
    links: Sequence[tuple[str, str]],
    sentences: dict[str, str],
    left: float,
    top: float,
    width: float,
) -> Layout:
    """Place everything below `top`, between `left` and `left + width`."""
    segments = sorted(set(_segments(layers, links)))
    rows = _best_order(_rows(layers, segments), segments, width)
    boxes: dict[Node, Box] = {}
    said: dict[str, list[str]] = {}
    y = top
    for row in rows:
        across = _across(row, width)
        for node in row:
            if not node.passing:
                room = across[node][1] - 2 * PADDING
                said[node.room] = wrapped(sentences[node.room], "said", room)
        deep = max(len(said[node.room]) for node in row if not node.passing)
        height = PADDING + NAME_HEIGHT + deep * LINE_HEIGHT + PADDING - 4
        for node, (x, wide) in across.items():
            boxes[node] = Box(left + x, y, wide, height)
        y += height + DROP
    rooms = {node.room: box for node, box in boxes.items() if not node.passing}
    passages = [box for node, box in sorted(boxes.items()) if node.passing]
    return Layout(rooms, said, _curves(segments, boxes), passages, y - DROP - top)


def _segments(
    layers: Sequence[Sequence[str]], links: Sequence[tuple[str, str]]
) -> Iterator[Segment]:
    level = {room: number for number, layer in enumerate(layers) for room in layer}
    for above, below in links:
        between = range(level[above] + 1, level[below])
        steps = [Node(level[above], above), *(Node(number, below, True) for number in between)]
        yield from pairwise([*steps, Node(level[below], below)])


def _rows(layers: Sequence[Sequence[str]], segments: Sequence[Segment]) -> Rows:
    passing = sorted({node for pair in segments for node in pair if node.passing})
    return [
        [Node(number, room) for room in layer] + [node for node in passing if node.layer == number]
        for number, layer in enumerate(layers)
    ]


def _across(row: Sequence[Node], width: float) -> dict[Node, tuple[float, float]]:
    """x and width of each node; rooms share the space that passing lines leave."""
    rooms = [node for node in row if not node.passing]
    space = width - PASSAGE * (len(row) - len(rooms)) - BETWEEN * (len(rooms) - 1)
    found: dict[Node, tuple[float, float]] = {}
    x, first = 0.0, True
    for node in row:
        if not node.passing and not first:
            x += BETWEEN
        wide = PASSAGE if node.passing else space / len(rooms)
        found[node] = (x, wide)
        x += wide
        first = first and node.passing
    return found


def _best_order(rows: Rows, segments: Sequence[Segment], width: float) -> Rows:
    """The better of two first orders: passing lines right of the rooms, or left of them."""
    costs = _Costs(segments, width)
    mirrored = [sorted(row, key=lambda node: not node.passing) for row in rows]
    found = [_ordered(first, costs) for first in (rows, mirrored)]
    return min(found, key=costs.of)


def _ordered(rows: Rows, costs: _Costs) -> Rows:
    """Apply the best change repeatedly, as long as it makes the picture simpler."""
    best = costs.of(rows)
    for _ in range(CHANGES):
        cost, changed = min(
            ((costs.of(changed), changed) for changed in _changes(rows)), key=lambda one: one[0]
        )
        if cost >= best:
            break
        rows, best = changed, cost
    return rows


def _changes(rows: Rows) -> Iterator[Rows]:
    """One node moved in its layer, or a whole passing line at the left or right edge."""
    for number, row in enumerate(rows):
        for changed in _moves(row):
            yield [*rows[:number], changed, *rows[number + 1 :]]
    for target in sorted({node.room for row in rows for node in row if node.passing}):
        yield [sorted(row, key=lambda node: not _passes(node, target)) for row in rows]
        yield [sorted(row, key=lambda node: _passes(node, target)) for row in rows]


def _passes(node: Node, target: str) -> bool:
    return node.passing and node.room == target


def _moves(row: list[Node]) -> Iterator[list[Node]]:
    for place_from in range(len(row)):
        rest = row[:place_from] + row[place_from + 1 :]
        for place_to in range(len(row)):
            if place_from != place_to:
                yield [*rest[:place_to], row[place_from], *rest[place_to:]]


class _Costs:
    """The costs of orders. A change affects one layer and its neighbours; the rest is cached."""

    def __init__(self, segments: Sequence[Segment], width: float) -> None:
        self._width = width
        self._known: dict[tuple[tuple[Node, ...], tuple[Node, ...]], float] = {}
        self._below: dict[int, list[Segment]] = {}
        for pair in segments:
            self._below.setdefault(pair[0].layer, []).append(pair)

    def of(self, rows: Rows) -> float:
        return sum(self._between(tuple(one), tuple(next_)) for one, next_ in pairwise(rows))

    def _between(self, upper: tuple[Node, ...], lower: tuple[Node, ...]) -> float:
        if (upper, lower) not in self._known:
            self._known[upper, lower] = self._count(upper, lower)
        return self._known[upper, lower]

    def _count(self, upper: Sequence[Node], lower: Sequence[Node]) -> float:
        across = _across(upper, self._width) | _across(lower, self._width)
        spans = {node: (x, x + wide) for node, (x, wide) in across.items()}
        middle = {node: x + wide / 2 for node, (x, wide) in across.items()}
        segments = self._below.get(upper[0].layer, [])
        crossings = sum(
            (middle[one[0]] - middle[two[0]]) * (middle[one[1]] - middle[two[1]]) < 0
            for one, two in combinations(segments, 2)
        )
        return CROSSING * crossings + sum(_aside(pair, spans) for pair in segments)


def _aside(pair: Segment, spans: dict[Node, tuple[float, float]]) -> float:
    """The sideways distance of a line between these two; bends of long lines count most."""
    one, other = (spans[node] for node in pair)
    if all(node.passing for node in pair):
        return LONG_LINE * abs(one[0] - other[0])
    return max(0.0, one[0] - other[1], other[0] - one[1])


def _curves(segments: Sequence[Segment], boxes: dict[Node, Box]) -> list[Curve]:
    starts = _ends(segments, boxes, 0)
    stops = _ends(segments, boxes, 1)
    return [
        Curve(
            starts[pair], boxes[pair[0]].bottom, stops[pair], boxes[pair[1]].y, not pair[1].passing
        )
        for pair in segments
    ]


def _ends(segments: Sequence[Segment], boxes: dict[Node, Box], side: int) -> dict[Segment, float]:
    """The x at which lines touch the bottom (0) or the top (1) of their node."""
    found: dict[Segment, float] = {}
    for node, box in boxes.items():
        mine = [pair for pair in segments if pair[side] == node]
        wished = sorted((_wish(box, boxes[pair[1 - side]]), pair) for pair in mine)
        if node.passing:
            found |= dict.fromkeys(mine, box.middle)
        else:
            places = _spread([x for x, _ in wished], box.x + CORNER, box.x + box.width - CORNER)
            found |= {pair: x for (_, pair), x in zip(wished, places, strict=True)}
    return found


def _wish(box: Box, other: Box) -> float:
    """The x at which a line to the other box would be straightest."""
    low, high = max(box.x, other.x), min(box.x + box.width, other.x + other.width)
    aim = (low + high) / 2 if low < high else other.middle
    return min(max(aim, box.x + CORNER), box.x + box.width - CORNER)


def _spread(wished: list[float], low: float, high: float) -> list[float]:
    """The same places, each at least APART from the next, between low and high."""
    places = list(wished)
    for index in range(1, len(places)):
        places[index] = max(places[index], places[index - 1] + APART)
    if places and places[-1] > high:
        places[-1] = high
        for index in range(len(places) - 2, -1, -1):
            places[index] = min(places[index], places[index + 1] - APART)
    return [max(low, place_) for place_ in places]
