"""The panels of the drawing as SVG: rooms in layers, steps of a request, table of imports.

Pure: facts in, text out. Every group starts with the rectangle that contains its text.
"""

from __future__ import annotations

from collections.abc import Iterator
from xml.sax.saxutils import escape

from tools.drawing.facts import Facts, Step, needed_lines, programs_of
from tools.drawing.layout import LINE_HEIGHT, PADDING, Box, Curve, Layout, place
from tools.drawing.style import css, width_of

WIDTH = 1000.0
MARGIN = 20.0
GUTTER = 16.0
SIDE = 312.0
TOP = 62.0
INSET = 14.0
STEP_HEIGHT = 33.0
BADGE = 8.5
CELL = 12.5
ROUND = 6
#: Numbers of imports from which the dot is larger.
DOT_STEPS = (5, 25)
#: Words of the legend, by the color of the mark.
PROGRAM_WORDS = {
    "both": "part of center and agent",
    "center": "part of the center",
    "agent": "part of the agent",
    "neither": "part of neither",
}


def draw(facts: Facts) -> str:
    """The whole drawing."""
    wide = WIDTH - 2 * MARGIN - GUTTER - SIDE
    links = needed_lines(facts.imports)
    inner = place(facts.layers, links, facts.sentences, MARGIN + INSET, TOP + 40, wide - 2 * INSET)
    rooms_height = inner.height + 40 + 34
    x = MARGIN + wide + GUTTER
    steps_height = 40 + STEP_HEIGHT * len(facts.steps) + 2
    table_height = 66 + CELL * len(facts.rooms) + 14
    height = max(rooms_height, steps_height + GUTTER + table_height)
    steps_box = Box(x, TOP, SIDE, height - GUTTER - table_height)
    table_box = Box(x, steps_box.bottom + GUTTER, SIDE, table_height)
    parts = [
        *_opening(TOP + height + MARGIN),
        *_rooms_panel(facts, inner, Box(MARGIN, TOP, wide, height)),
        *_steps_panel(facts.steps, steps_box),
        *_table_panel(facts, table_box),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def _opening(height: float) -> Iterator[str]:
    size = f'width="{_n(WIDTH)}" height="{_n(height)}" viewBox="0 0 {_n(WIDTH)} {_n(height)}"'
    yield f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img" aria-labelledby="t d">'
    yield "<!-- Made by `make docs` from the package; edit the code. -->"
    yield '<title id="t">Skep: rooms, imports and the path of one request</title>'
    yield '<desc id="d">The rooms of the package in layers. A room imports only rooms below it.'
    yield "Numbers in a room are the steps of a request that this room runs.</desc>"
    yield f"<style>\n{css()}</style>"
    yield "<g>"
    yield _rect(Box(0, 0, WIDTH, height), "paper", 10)
    yield _text(MARGIN, 30, "Skep: rooms, imports and the path of one request", "title")
    about = "A folder of the package is a room. A room imports only rooms below it."
    yield _text(MARGIN, 49, about, "said")
    yield "</g>"


def _rooms_panel(facts: Facts, layout: Layout, box: Box) -> Iterator[str]:
    yield '<g id="rooms">'
    yield _rect(box, "stage", ROUND)
    yield _text(box.x + INSET, box.y + 24, "Rooms in layers", "head")
    yield from _legend(box)
    for passage in layout.passages:
        yield f'<path class="link" d="M{_n(passage.middle)} {_n(passage.y)}V{_n(passage.bottom)}"/>'
    for curve in layout.curves:
        yield from _curve(curve)
    note = "Lines: the fewest imports from which all others follow. The table lists all of them."
    yield _text(box.x + INSET, box.bottom - 12, note, "tiny")
    yield "</g>"
    for room, inside in layout.boxes.items():
        yield from _room(facts, room, inside, layout.lines[room])


def _legend(box: Box) -> Iterator[str]:
    x = box.x + INSET + width_of("Rooms in layers", "head") + 20
    for mark, words in PROGRAM_WORDS.items():
        yield f'<rect class="{mark}" x="{_n(x)}" y="{_n(box.y + 14)}" width="4" height="12"/>'
        yield _text(x + 9, box.y + 24, words.removeprefix("part of "), "tiny")
        x += 9 + width_of(words.removeprefix("part of "), "tiny") + 14


def _curve(curve: Curve) -> Iterator[str]:
    stop = curve.y2 - (5 if curve.ends else 0)
    half = (curve.y1 + stop) / 2
    yield (
        f'<path class="link" d="M{_n(curve.x1)} {_n(curve.y1)}C{_n(curve.x1)} {_n(half)} '
        f'{_n(curve.x2)} {_n(half)} {_n(curve.x2)} {_n(stop)}"/>'
    )
    if curve.ends:
        x, y = curve.x2, curve.y2
        yield f'<path class="tip" d="M{_n(x)} {_n(y)}l-4 -7h8z"/>'


def _room(facts: Facts, room: str, box: Box, lines: list[str]) -> Iterator[str]:
    yield f'<g id="room-{room}">'
    yield _rect(box, "box", ROUND)
    yield _stripe(box, mark_of(programs_of(facts.imports, room)))
    yield _text(box.x + PADDING, box.y + 20, room, "name")
    numbers = facts.steps_in(room)
    for place_, number in enumerate(reversed(numbers)):
        yield from _badge(box.x + box.width - 14 - 20 * place_, box.y + 15.5, number)
    for index, line in enumerate(lines):
        yield _text(box.x + PADDING, box.y + 36 + index * LINE_HEIGHT, line, "said")
    yield "</g>"


def mark_of(programs: frozenset[str]) -> str:
    """The color of a room: in both programs, in one of them, or in none."""
    if len(programs) > 1:
        return "both"
    return next(iter(programs), "neither")


def _stripe(box: Box, mark: str) -> str:
    x, y, low = box.x, box.y + 8, box.bottom - 8
    return f'<rect class="{mark}" x="{_n(x)}" y="{_n(y)}" width="4" height="{_n(low - y)}"/>'


def _badge(x: float, y: float, number: int) -> Iterator[str]:
    yield f'<circle class="stop" cx="{_n(x)}" cy="{_n(y)}" r="{_n(BADGE)}"/>'
    yield _text(x, y + 3.6, str(number), "number", "middle")


def _steps_panel(steps: list[Step], box: Box) -> Iterator[str]:
    yield '<g id="steps">'
    yield _rect(box, "stage", ROUND)
    yield _text(box.x + INSET, box.y + 24, "The path of one request", "head")
    gap = (box.height - 40) / len(steps)
    x, first = box.x + INSET + BADGE, box.y + 40 + 8
    last = first + gap * (len(steps) - 1)
    yield f'<path class="way" d="M{_n(x)} {_n(first)}V{_n(last)}"/>'
    for index, step in enumerate(steps):
        yield from _step(step, box, x, first + gap * index)
    yield "</g>"


def _step(step: Step, box: Box, x: float, y: float) -> Iterator[str]:
    yield from _badge(x, y, step.number)
    yield _text(x + 18, y + 1, step.title, "strong")
    yield _text(x + 18, y + 14, step.module, "file")
    if step.state:
        wide = width_of(step.state, "tiny") + 14
        pill = Box(box.x + box.width - INSET - wide, y - 9, wide, 15)
        yield _rect(pill, "pill", 7.5)
        yield _text(pill.middle, y + 2, step.state, "state", "middle")


def _table_panel(facts: Facts, box: Box) -> Iterator[str]:
    """A row per room; its name is on the diagonal, so that it names the column too."""
    rooms = facts.rooms
    right = box.x + box.width - INSET
    cell = min(CELL, (box.width - 2 * INSET - width_of(rooms[0], "tiny") - 8) / len(rooms))
    left, top = right - cell * len(rooms), box.y + 66
    yield '<g id="imports">'
    yield _rect(box, "stage", ROUND)
    yield _text(box.x + INSET, box.y + 24, "All imports", "head")
    yield _text(box.x + INSET, box.y + 41, "Right of a name: what it imports. Above: what", "tiny")
    yield _text(
        box.x + INSET,
        box.y + 53,
        f"imports it. Larger dots: {DOT_STEPS[0]} and {DOT_STEPS[1]} imports or more.",
        "tiny",
    )
    for row in range(len(rooms)):
        y, x = top + cell * (row + 0.5), left + cell * (row + 0.5)
        yield f'<path class="grid" d="M{_n(x)} {_n(y)}H{_n(right)}M{_n(x)} {_n(y)}V{_n(top)}"/>'
    for row, room in enumerate(rooms):
        y = top + cell * (row + 0.5)
        yield _text(left + cell * row + 2, y + 3.4, room, "tiny", "end")
        for column, other in enumerate(rooms):
            if count := facts.imports.get((room, other)):
                yield _dot(left + cell * (column + 0.5), y, count, cell)
    yield "</g>"


def _dot(x: float, y: float, count: int, cell: float) -> str:
    """One of three sizes: the drawing must not change with every import."""
    size = cell * (0.15 + 0.13 * sum(count >= least for least in DOT_STEPS))
    return f'<circle class="tip" cx="{_n(x)}" cy="{_n(y)}" r="{_n(size)}"/>'


def _rect(box: Box, kind: str, corner: float) -> str:
    place_ = f'x="{_n(box.x)}" y="{_n(box.y)}" width="{_n(box.width)}" height="{_n(box.height)}"'
    return f'<rect class="{kind}" {place_} rx="{_n(corner)}"/>'


def _text(x: float, y: float, text: str, kind: str, anchor: str = "start") -> str:
    side = "" if anchor == "start" else f' text-anchor="{anchor}"'
    return f'<text class="{kind}" x="{_n(x)}" y="{_n(y)}"{side}>{escape(text)}</text>'


def _n(number: float) -> str:
    """A number with at most one decimal."""
    return f"{number:.1f}".removesuffix(".0")
