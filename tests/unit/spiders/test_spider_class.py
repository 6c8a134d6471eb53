"""The Spider class: arguments, settings, items, and how it is found by name."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest

import skep
from skep.errors import ConfigurationError, InvalidInput
from skep.spiders.authoring.item import as_data, is_item
from skep.spiders.driving.harvest import is_sendable
from skep.spiders.driving.sent_urls import SeenUrls
from skep.spiders.load import load_spider


class Shop(skep.Spider):
    pages: int = 3
    deep: bool = False
    tags: list[str] = []  # noqa: RUF012 - as people write spiders
    settings = {"retries": 2, "depth_limit": 4}  # noqa: RUF012 - as people write spiders


def test_the_public_names_are_these() -> None:
    """What is promised: a change of this list is a change for every spider."""
    assert skep.__all__ == ["Failure", "Item", "Links", "Request", "Response", "Rule", "Spider"]
    assert skep.__all__ == sorted(skep.__all__)
    assert all(getattr(skep, name).__name__ == name for name in skep.__all__)
    assert set(skep.__all__) <= set(dir(skep))
    with pytest.raises(AttributeError, match="Nothing"):
        _ = skep.Nothing


def test_importing_skep_loads_no_parser() -> None:
    """`skep --help` stays fast."""
    code = "import sys, skep; print([m for m in sys.modules if m in {'parsel', 'selectolax'}])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_arguments_become_attributes_of_the_type_that_the_class_says() -> None:
    """R1: arguments of a crawl job."""
    spider = Shop(pages="7", deep="true", tags="a,b", other="x", start_urls="http://a/,http://b/")
    assert (spider.pages, spider.deep, spider.tags) == (7, True, ["a", "b"])
    assert (spider.start_urls, vars(spider)["other"]) == (["http://a/", "http://b/"], "x")
    assert (Shop().pages, Shop().name) == (3, "shop")


@pytest.mark.parametrize("arguments", [{"pages": "many"}, {"parse": "x"}, {"a-b": "x"}, {"_x": 1}])
def test_arguments_that_cannot_be_are_refused(arguments: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError, match=next(iter(arguments))):
        Shop(**arguments)


def test_settings_are_those_of_the_run_and_of_the_loop() -> None:
    spider = Shop()
    assert (spider.run_settings.retries, spider.run_settings.time_limit) == (2, 120.0)
    assert (spider.options.depth_limit, spider.options.callback_seconds) == (4, 30.0)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"retrys": 1}, "did you mean 'retries'"),
        ({"retries": -1}, "retries"),
        ({"depth_limit": "4"}, "depth_limit"),
        ({"DOWNLOAD_DELAY": 1}, "spiders.md"),
    ],
)
def test_wrong_settings_are_named(settings: dict[str, Any], words: str) -> None:
    kind = type("Wrong", (skep.Spider,), {"settings": settings})
    with pytest.raises(ConfigurationError, match=words):
        kind()


def test_one_text_is_not_a_list_of_urls() -> None:
    kind = type("Wrong", (skep.Spider,), {"start_urls": "http://a/"})
    with pytest.raises(ConfigurationError, match=r"write \['http://a/'\]"):
        list(kind().start())


class Quote(skep.Item):
    text: str
    author: str = ""


@dataclass
class Price:
    amount: float
    at: datetime


class Plain(msgspec.Struct):
    a: int


def test_items_of_every_kind_become_plain_data() -> None:
    moment = datetime(2026, 1, 5, tzinfo=UTC)
    found: list[Any] = [{"a": {1}}, Quote("x"), Price(1.5, moment), Plain(3)]
    assert all(is_item(item) for item in found)
    assert [as_data(item)[0] for item in found] == [
        {"a": [1]},
        {"text": "x", "author": ""},
        {"amount": 1.5, "at": "2026-01-05T00:00:00Z"},
        {"a": 3},
    ]
    assert not any(is_item(other) for other in (Price, "text", 7, [1]))


@pytest.mark.parametrize(
    "item",
    [{"a": object()}, {"a": "\ud800"}, {"a": 2**70}, Quote(text=7)],  # type: ignore[arg-type]  # it is wrong on purpose
)
def test_what_cannot_be_kept_is_refused_where_it_was_found(item: Any) -> None:
    with pytest.raises(InvalidInput, match="cannot be kept"):
        as_data(item)


def test_seen_urls_are_bounded_and_never_wrong() -> None:
    seen = SeenUrls(1000)
    for number in range(5000):
        seen.add(f"u{number}")
    assert len(seen) <= 1001
    assert "u4999" in seen
    assert "u4600" in seen
    assert "u5000" not in seen
    none = SeenUrls(0)
    none.add("x")
    assert "x" not in none


@pytest.mark.parametrize(
    ("url", "sendable"),
    [
        ("http://example.org", True),
        ("https://user:p@example.org:8443/a?b#c", True),
        ("http://[2001:db8::1]/", True),
        ("http://bücher.example/ü", True),
        ("enterprise://host/x", True),
        ("http://", False),
        ("http:///path", False),
        ("http://two words/", False),
        ("http://example.org/two words", False),
        ("http://example.org:99999/", False),
        ("http://a\\b/", False),
        ("http://exa$mple.org/", False),
        ("mailto:x@example.org", False),
        ("http://example.org/" + "x" * 8000, False),
    ],
)
def test_only_what_a_center_takes_is_sent(url: str, sendable: bool) -> None:
    assert is_sendable(url) is sendable


TWO = "import skep\nclass One(skep.Spider): pass\nclass Two(skep.Spider): name = 'second'\n"


def written(folder: Path, name: str, text: str) -> str:
    path = folder / name
    path.write_text(text)
    return str(path)


def test_a_spider_is_found_in_a_file(tmp_path: Path) -> None:
    file = written(tmp_path, "alone_spider.py", "import skep\nclass One(skep.Spider): pass\n")
    assert load_spider(file).__name__ == "One"


def test_of_several_spiders_one_is_named(tmp_path: Path) -> None:
    file = written(tmp_path, "two_spiders.py", TWO)
    assert load_spider(f"{file}:Two").__name__ == "Two"
    assert load_spider(f"{file}:second").__name__ == "Two"
    with pytest.raises(ConfigurationError, match=r"two_spiders.py:One, .*two_spiders.py:Two"):
        load_spider(file)
    with pytest.raises(ConfigurationError, match="no spider 'Three'; it has One, Two"):
        load_spider(f"{file}:Three")


def test_a_spider_is_found_in_a_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """R1: a crawl job names its spider by its import path."""
    (tmp_path / "hive_shop").mkdir()
    written(tmp_path / "hive_shop", "__init__.py", "")
    written(tmp_path / "hive_shop", "spiders.py", TWO)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    assert load_spider("hive_shop.spiders:One").__name__ == "One"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("import skep\nclass One(skep.Spider)\n    pass\n", r"broken_spider.py:2: .*class One"),
        ("import skep\n\nskep.nonsense\n", r"broken_spider.py:3: AttributeError|__init__.py"),
        ("import not_there_at_all\n", r"broken_spider.py:1: ModuleNotFoundError"),
        ("x = 1\n", "holds no spider"),
    ],
)
def test_a_broken_file_shows_its_line(tmp_path: Path, text: str, words: str) -> None:
    file = written(tmp_path, "broken_spider.py", text)
    with pytest.raises(ConfigurationError, match=words):
        load_spider(file)


@pytest.mark.parametrize("name", ["nowhere.py", "no_such_package.module:One"])
def test_what_is_not_there_is_said_to_be_not_there(name: str) -> None:
    with pytest.raises(ConfigurationError, match="there is no"):
        load_spider(name)
