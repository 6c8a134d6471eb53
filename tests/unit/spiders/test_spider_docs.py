"""The pages about spiders say what is there, and their example is the one that runs."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

import skep
from skep.model.fleet.placement import Placement
from skep.model.run import RunSettings
from skep.spiders.authoring.spider_settings import SpiderOptions
from skep.spiders.driving import stats
from skep.spiders.load import load_spider
from skep.testing.spider_double import run_spider

ROOT = Path(__file__).parents[3]
REFERENCE = (ROOT / "docs" / "reference" / "spiders.md").read_text()
TUTORIAL = (ROOT / "docs" / "tutorial" / "first-spider.md").read_text()
EXAMPLE = ROOT / "examples" / "demo_pages.py"


def code_blocks(page: str) -> list[str]:
    return re.findall(r"```python\n(.*?)```", page, flags=re.DOTALL)


@pytest.mark.parametrize("kind", [SpiderOptions, RunSettings])
def test_the_reference_has_every_setting_with_its_default(kind: Any) -> None:
    rows = dict(re.findall(r"^\| `(\w+)` \| ([^|]+) \| [^|]+ \|$", REFERENCE, flags=re.MULTILINE))
    for name in kind.__struct_fields__:
        default = getattr(kind(), name)
        words = default.in_words() if isinstance(default, Placement) else f"{default}"
        shown = words.removesuffix(".0").lower()
        assert rows.get(name, "").strip() == shown, name


def test_the_reference_has_every_reason_for_an_end() -> None:
    words = {
        value for name, value in vars(stats).items() if name.isupper() and isinstance(value, str)
    }
    assert len(words) > 10
    assert [word for word in words if f"`{word}`" not in REFERENCE] == []


@pytest.mark.parametrize("kind", [skep.Spider, skep.Request, skep.Response, skep.Failure])
def test_the_reference_has_every_public_name(kind: type[object]) -> None:
    own = {
        "follow_rules",
        "only_follow",
        "read_sitemap",
        "read_feed",
        "is_plain",
        "document",
        "joiner",
    }
    names = [name for name in vars(kind) if not name.startswith("_") and name not in own]
    hidden = {"depth", "follow"} if kind is skep.Request else set()
    said = set(re.findall(r"\w+", REFERENCE))
    assert [name for name in names if name not in said | hidden] == []


def test_the_tutorial_shows_the_example_that_runs() -> None:
    assert code_blocks(TUTORIAL)[0] == EXAMPLE.read_text()


def test_the_test_of_the_tutorial_passes() -> None:
    names: dict[str, Any] = {"DemoPages": load_spider(str(EXAMPLE)), "run_spider": run_spider}
    exec(compile(code_blocks(TUTORIAL)[1], "first-spider.md", "exec"), names)
    assert names["tried"].ending.reason == "finished"
