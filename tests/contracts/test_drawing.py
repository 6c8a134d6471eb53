"""The drawing of the architecture is in step with the package, well formed and readable."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import combinations, pairwise
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from skep.model.states import RequestState
from tools.drawing.__main__ import PLACE
from tools.drawing.facts import BadFacts, Facts, Step, needed_lines, reachable, read_facts
from tools.drawing.facts import read_steps as steps_of
from tools.drawing.layout import Box, place
from tools.drawing.panels import draw
from tools.drawing.style import DARK, LIGHT, READ_ON, contrast, width_of

#: The drawing takes ten seconds to lay out: one process makes it for all tests.
pytestmark = pytest.mark.xdist_group("drawing")

ROOT = Path(__file__).parents[2]
WALK = ROOT / "docs" / "why" / "one-request.md"
SVG = "{http://www.w3.org/2000/svg}"
#: More rooms and layers than the package has, with long names and sentences.
LAYERS = [["first", "second"], ["third"], ["a", "b", "c", "d"], ["fourth"], ["e", "f"], ["last"]]
STEP = "## 1. Submit\n\nFile: `{}`.\n"


def invented() -> Facts:
    rooms = [room for layer in LAYERS for room in layer]
    sentences = dict.fromkeys(rooms, "A sentence that is longer than the line of a narrow box.")
    imports = {("first", "third"): 3, ("second", "last"): 1, ("third", "a"): 9, ("third", "f"): 2}
    imports |= {("a", "e"): 1, ("b", "last"): 4, ("d", "fourth"): 1, ("fourth", "last"): 40}
    return Facts(LAYERS, sentences, imports, [Step(1, "Submit it", "skep/third/file.py", "done")])


@pytest.fixture(scope="module")
def facts() -> Facts:
    return read_facts()


@pytest.fixture(scope="module")
def drawn(facts: Facts) -> str:
    return draw(facts)


@pytest.fixture(params=["package", "invented"])
def drawing(request: pytest.FixtureRequest, drawn: str) -> ET.Element:
    return ET.fromstring(drawn if request.param == "package" else draw(invented()))


def test_the_drawing_is_in_step(drawn: str) -> None:
    """If this fails, run `make docs` and look at the result."""
    assert PLACE.read_text() == drawn


def test_the_same_facts_give_the_same_drawing() -> None:
    assert draw(invented()) == draw(invented())


def test_it_stands_alone(drawing: ET.Element) -> None:
    """No script, no font and no picture from elsewhere; 1,000 pixels wide."""
    names = {element.tag.removeprefix(SVG) for element in drawing.iter()}
    assert names <= {"svg", "title", "desc", "style", "g", "rect", "text", "path", "circle"}
    style = drawing.findtext(f"{SVG}style") or ""
    assert "url(" not in style
    assert "@import" not in style
    assert "@media (prefers-color-scheme: dark)" in style
    assert drawing.get("width") == "1000"


def test_every_room_is_drawn_with_its_sentence_and_its_steps(facts: Facts, drawn: str) -> None:
    tree = ET.fromstring(drawn)
    for room in facts.rooms:
        [group] = [one for one in tree.iter(f"{SVG}g") if one.get("id") == f"room-{room}"]
        texts = [text.text or "" for text in group.iter(f"{SVG}text")]
        numbers = [text for text in texts if text.isdigit()]
        assert texts[0] == room
        assert numbers == [str(number) for number in reversed(facts.steps_in(room))]
        assert " ".join(texts[1 + len(numbers) :]) == facts.sentences[room]


def spans(group: ET.Element) -> Iterator[tuple[str, float, float, float]]:
    """Each text with its left end, right end and base line; widths are estimated too wide."""
    for text in group.iter(f"{SVG}text"):
        said, x = text.text or "", float(text.get("x", ""))
        wide = width_of(said, text.get("class", ""))
        begin = {"middle": x - wide / 2, "end": x - wide}.get(text.get("text-anchor", ""), x)
        yield said, begin, begin + wide, float(text.get("y", ""))


def outer(group: ET.Element) -> tuple[float, float, float, float]:
    rect = group.find(f"{SVG}rect")
    assert rect is not None
    x, y, wide, high = (float(rect.get(name, "")) for name in ("x", "y", "width", "height"))
    return x, y, x + wide, y + high


def test_text_stays_inside_its_box(drawing: ET.Element) -> None:
    wrong = []
    for group in drawing.iter(f"{SVG}g"):
        left, top, right, bottom = outer(group)
        for said, begin, end, base in spans(group):
            if begin < left + 2 or end > right - 2 or base < top + 8 or base > bottom - 3:
                wrong.append((group.get("id"), said))
    assert wrong == []


def test_names_and_numbers_do_not_overlap(drawing: ET.Element) -> None:
    lines: dict[tuple[str, int], list[tuple[float, float]]] = {}
    for group in drawing.iter(f"{SVG}g"):
        for _, begin, end, base in spans(group):
            lines.setdefault((group.get("id", ""), round(base / 4)), []).append((begin, end))
    for line in lines.values():
        ordered = sorted(line)
        assert all(before[1] <= after[0] for before, after in pairwise(ordered))


def overlap(one: Box, other: Box) -> bool:
    beside = one.x + one.width <= other.x or other.x + other.width <= one.x
    return not (beside or one.bottom <= other.y or other.bottom <= one.y)


@pytest.mark.parametrize("of", ["package", "invented"])
def test_boxes_and_passing_lines_are_apart_and_lines_go_down(of: str, facts: Facts) -> None:
    chosen = facts if of == "package" else invented()
    links = needed_lines(chosen.imports)
    found = place(chosen.layers, links, chosen.sentences, 0, 0, 600)
    every = [*found.boxes.values(), *found.passages]
    assert [pair for pair in combinations(every, 2) if overlap(*pair)] == []
    assert all(found.boxes[above].bottom < found.boxes[below].y for above, below in links)
    assert all(curve.y1 < curve.y2 for curve in found.curves)


def test_the_lines_say_as_much_as_all_imports(facts: Facts) -> None:
    """Every import follows from the lines that are drawn, and none of those can be left out."""
    links = dict.fromkeys(needed_lines(facts.imports), 1)
    for room in facts.rooms:
        assert reachable(links, room) == reachable(facts.imports, room)
    for link in links:
        rest = {pair: 1 for pair in links if pair != link}
        assert link[1] not in reachable(rest, link[0])


@pytest.mark.parametrize("palette", [LIGHT, DARK], ids=["light", "dark"])
def test_colors_can_be_read(palette: dict[str, str]) -> None:
    """4.5 for text and 3 for lines at least, as WCAG 2.1 AA asks for."""
    found = {(one, on): contrast(palette[one], palette[on]) for one, on, _ in READ_ON}
    assert [pair for *pair, least in READ_ON if found[pair[0], pair[1]] < least] == []


def test_this_test_would_see_a_color_that_cannot_be_read() -> None:
    assert contrast("#000000", "#ffffff") == pytest.approx(21)
    assert contrast("#777777", "#ffffff") < 4.5


def test_the_page_shows_the_drawing() -> None:
    assert "](architecture.svg)" in (ROOT / "docs" / "why" / "architecture.md").read_text()


def test_the_states_of_the_steps_exist(facts: Facts) -> None:
    states = {state.name.lower() for state in RequestState}
    assert {step.state for step in facts.steps if step.state} <= states


def test_files_that_the_walk_names_exist() -> None:
    named = re.findall(r"`([a-z]+/[\w/.]+\.\w+)`", WALK.read_text())
    assert len(named) > 20, "files are not found"
    assert [name for name in named if not (ROOT / name).is_file()] == []


def test_a_step_without_a_file_is_refused() -> None:
    assert steps_of(STEP.format("skep/errors.py"))[0].title == "Submit"
    with pytest.raises(BadFacts, match=r"do not exist: skep/gone\.py"):
        steps_of(STEP.format("skep/gone.py"))
    with pytest.raises(BadFacts, match="2 numbered headings, 1 of them"):
        steps_of(STEP.format("skep/errors.py") + "\n## 2. Lost\n\nNo file.\n")
