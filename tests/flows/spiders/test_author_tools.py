"""The tools of the author of a spider: new, fetch, shell, parse, replay, export."""

from __future__ import annotations

import csv
import io
import json
import os
import subprocess
import sys
import warnings
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from skep.cli.main import run
from skep.testing.processes import QUICK, CenterProcess

with warnings.catch_warnings():  # FastWARC 1.1 warns about its own old names when imported
    warnings.simplefilter("ignore", DeprecationWarning)
    from fastwarc.warc import ArchiveIterator

pytestmark = pytest.mark.xdist_group("cli")

PAGES = 40
RUN = "titles"
SPIDER = """
import skep


class Titles(skep.Spider):
    url: str = ""

    def start(self):
        yield f"{self.url}/page/0"

    def parse(self, response):
        yield {"url": response.url, "title": response.title}
        yield from response.follow_all()

    def short(self, response):
        yield {"letters": len(response.text)}

    def wrong(self, response):
        raise ValueError("not this page")
"""


@pytest.fixture(scope="module")
def site() -> Iterator[str]:
    command = [sys.executable, "-m", "skep.testing.site", f"--pages={PAGES}"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        yield process.stdout.readline().strip()
        process.terminate()


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory, site: str) -> Iterator[Path]:
    """A folder with a spider, a center, and a run of the spider."""
    folder = tmp_path_factory.mktemp("desk")
    (folder / "titles.py").write_text(SPIDER)
    with CenterProcess(folder / "skep-data", with_agent=True):
        done = skep(folder, "run", "titles.py", "-a", f"url={site}", "--run", RUN)
        assert done.returncode == 0, done.stderr
        yield folder


def skep(folder: Path, *arguments: str, text: str = "") -> subprocess.CompletedProcess[str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("SKEP_")}
    return subprocess.run(
        [sys.executable, "-m", "skep", *arguments],
        cwd=folder,
        env={**kept, **QUICK},
        input=text,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def answer(folder: Path, *arguments: str, code: int = 0) -> Any:
    done = skep(folder, *arguments)
    assert done.returncode == code, done.stderr
    return json.loads(done.stdout)


def test_a_new_spider_runs_as_it_is(desk: Path, site: str) -> None:
    """R1: from nothing to items with two commands."""
    made = skep(desk, "new", "spider", "my-site", "--url", f"{site}/")
    assert made.returncode == 0, made.stderr
    text = (desk / "my_site.py").read_text()
    assert "class MySite(skep.Spider):" in text
    assert len(text.splitlines()) < 20
    summary = answer(desk, "run", "my_site.py", "-o", "my-site.jsonl", "--json")
    assert summary["items"] == PAGES + 1, "every page and the front page"
    assert len((desk / "my-site.jsonl").read_text().splitlines()) == PAGES + 1

    again = skep(desk, "new", "spider", "my-site")
    assert (again.returncode, "my_site.py exists" in again.stderr) == (2, True)
    assert (desk / "my_site.py").read_text() == text


@pytest.mark.parametrize("name", ["1st", "../up", "a b", "class", ""])
def test_a_spider_needs_a_name_that_can_be_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(["new", "spider", "--", name]) == 2
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("url", ["nowhere", 'http://a/"+x+"', "http://[", "http://a/\n"])
def test_no_url_becomes_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, url: str) -> None:
    """What is pasted into a template stays text, and leaves no file when it cannot."""
    monkeypatch.chdir(tmp_path)
    assert run(["new", "spider", "pasted", "--url", url]) == 2
    assert list(tmp_path.iterdir()) == []


def test_fetch_shows_what_an_agent_would_get(desk: Path, site: str) -> None:
    done = skep(desk, "fetch", f"{site}/page/3", "--headers")
    assert done.returncode == 0, done.stderr
    assert "<title>Page 3</title>" in done.stdout
    assert done.stderr.startswith(f"200 {site}/page/3 · ")
    assert "content-type: text/html" in done.stderr.lower()
    told = answer(desk, "fetch", f"{site}/redirect/2", "--json")
    assert (told["url"], told["status"]) == (f"{site}/page/0", 200)


def test_fetch_says_why_there_is_no_page(desk: Path, site: str) -> None:
    missing = skep(desk, "fetch", f"{site}/status/404")
    assert (missing.returncode, "<title>404</title>" in missing.stdout) == (1, True)
    assert "(status)" in missing.stderr
    nobody = skep(desk, "fetch", "http://127.0.0.1:9/")
    assert (nobody.returncode, nobody.stdout) == (1, "")
    assert "(network)" in nobody.stderr
    inside = skep(desk, "fetch", "http://10.0.0.1/")
    assert (inside.returncode, "(blocked)" in inside.stderr) == (1, True), "egress rules hold"
    assert skep(desk, "fetch", "no-url").returncode == 2


def test_the_shell_runs_code_on_a_page(desk: Path, site: str) -> None:
    def said(code: str, *more: str) -> str:
        done = skep(desk, "shell", f"{site}/page/3", "-c", code, *more)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    assert said("response.css('h1::text').get()") == "'Page 3'"
    assert said("fetch(response.links()[0]); print(response.title)").endswith("Page 4")
    lines = "first = response.title\nfor word in first.split():\n    print(word)"
    assert said(lines) == "Page\n3"
    assert said("next(spider.parse(response))", "--spider", "titles.py") == str(
        {"url": f"{site}/page/3", "title": "Page 3"}
    )


def test_the_shell_tells_errors_and_takes_typed_lines(desk: Path, site: str) -> None:
    raised = skep(desk, "shell", f"{site}/page/3", "-c", "1 / 0")
    assert (raised.returncode, "ZeroDivisionError" in raised.stderr) == (1, True)
    wrong = skep(desk, "shell", "-c", "1 /")
    assert (wrong.returncode, "SyntaxError" in wrong.stderr) == (1, True)
    typed = skep(desk, "shell", f"{site}/page/3", text="response.title\n")
    assert (typed.returncode, "'Page 3'" in typed.stdout) == (0, True)


def test_parse_shows_items_and_requests(desk: Path, site: str) -> None:
    found = answer(desk, "parse", f"{site}/page/3", "--spider", "titles.py")
    assert found["items"] == [{"url": f"{site}/page/3", "title": "Page 3"}]
    assert {"url": f"{site}/page/4", "method": "GET", "callback": "parse"} in found["requests"]
    short = answer(desk, "parse", f"{site}/page/3", "--spider", "titles.py", "--callback", "short")
    assert (short["callback"], short["requests"]) == ("short", [])
    assert short["items"][0]["letters"] > 9000


def test_parse_says_what_is_wrong(desk: Path, site: str) -> None:
    asked = ("parse", f"{site}/page/3", "--spider", "titles.py", "--callback")
    raised = skep(desk, *asked, "wrong")
    assert (raised.returncode, "ValueError: not this page" in raised.stderr) == (1, True)
    unknown = skep(desk, *asked, "shrt")
    assert (unknown.returncode, "no method 'shrt'" in unknown.stderr) == (2, True)


def test_replay_of_the_same_spider_finds_no_difference(desk: Path) -> None:
    told = answer(desk, "replay", RUN, "--spider", "titles.py", "--json")
    assert (told["pages"], told["kept"], told["now"], told["same"]) == (PAGES,) * 4


def test_replay_shows_what_a_change_would_change(desk: Path) -> None:
    """Field by field, from archived pages: the site is not asked."""
    changed = SPIDER.replace('"title": response.title}', '"name": "P", "url": response.url[-2:]}')
    (desk / "changed.py").write_text(changed)
    told = answer(desk, "replay", RUN, "--spider", "changed.py", "--json", code=1)
    assert (told["same"], told["changed"], told["added"], told["removed"]) == (0, PAGES, 0, 0)
    assert told["fields"] == {
        "url": {"added": 0, "removed": 0, "changed": PAGES},
        "title": {"added": 0, "removed": PAGES, "changed": 0},
        "name": {"added": PAGES, "removed": 0, "changed": 0},
    }
    words = skep(desk, "replay", RUN, "--spider", "changed.py")
    assert (words.returncode, "title removed: 'Page 0'" in words.stdout) == (1, True)


def test_replay_notices_items_that_come_and_go(desk: Path) -> None:
    only_even = SPIDER.replace("        yield {", "        if int(response.url[-1]) % 2: yield {")
    (desk / "even.py").write_text(only_even)
    told = answer(desk, "replay", RUN, "--spider", "even.py", "--json", code=1)
    assert (told["same"], told["removed"], told["changed"]) == (PAGES // 2, PAGES // 2, 0)
    twice = SPIDER.replace("        yield from", "        yield {'more': 1}\n        yield from")
    (desk / "twice.py").write_text(twice)
    told = answer(desk, "replay", RUN, "--spider", "twice.py", "--json", code=1)
    assert (told["same"], told["added"]) == (PAGES, PAGES)
    assert skep(desk, "replay", "ghost", "--spider", "titles.py").returncode == 3


def test_items_leave_as_lines_and_as_a_table(desk: Path, site: str) -> None:
    lines = skep(desk, "data", "export", RUN)
    items = [json.loads(line) for line in lines.stdout.splitlines()]
    assert len({item["url"] for item in items}) == len(items) == PAGES
    table = skep(desk, "data", "export", RUN, "--format", "csv")
    assert list(csv.DictReader(io.StringIO(table.stdout))) == items
    assert skep(desk, "data", "export", RUN, "-o", "out.jsonl").returncode == 0
    assert (desk / "out.jsonl").read_text() == lines.stdout
    again = skep(desk, "data", "export", RUN, "-o", "out.jsonl")
    assert (again.returncode, "exists; choose another file" in again.stderr) == (2, True)
    assert skep(desk, "data", "export", "ghost").returncode == 3


def test_pages_leave_as_a_warc_file(desk: Path, site: str) -> None:
    done = skep(desk, "data", "export", RUN, "--warc", "warc")
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
    with (desk / "warc" / f"{RUN}.warc.zst").open("rb") as file:
        records = [
            (
                record.headers.get("WARC-Type"),
                record.headers.get("WARC-Target-URI"),
                record.reader.read(),
            )
            for record in ArchiveIterator(file)
        ]
    counts = Counter(kind for kind, _, _ in records)
    assert counts["response"] == counts["request"] == PAGES
    assert counts["warcinfo"] == 1
    pages = {uri: body for kind, uri, body in records if kind == "response"}
    assert set(pages) == {f"{site}/page/{number}" for number in range(PAGES)}
    assert b"<title>Page 7</title>" in pages[f"{site}/page/7"]
    assert skep(desk, "data", "export", RUN, "--warc", "warc").returncode == 2
