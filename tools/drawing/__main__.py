"""`python -m tools.drawing write` makes the drawing, `check` compares it with the code."""

from __future__ import annotations

import sys

from tools.drawing.facts import ROOT, read_facts
from tools.drawing.panels import draw

PLACE = ROOT / "docs" / "why" / "architecture.svg"


def main(task: str) -> int:
    made = draw(read_facts())
    if task == "write":
        PLACE.write_text(made)
    elif not PLACE.exists() or PLACE.read_text() != made:
        sys.stderr.write("docs/why/architecture.svg is out of date; run `make docs`\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
