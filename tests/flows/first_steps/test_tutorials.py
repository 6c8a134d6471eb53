"""The commands of the tutorials, as they stand there (U8, U12): pasted into a shell, in order.

Only addresses differ: the center and the site have free ports here. Commands that start the
center, the site and the second agent stay running; tests start those themselves."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from skep.testing.processes import QUICK, CenterProcess

pytestmark = pytest.mark.xdist_group("cli")

ROOT = Path(__file__).parents[3]
DOCS = ROOT / "docs" / "tutorial"
#: They stay in the foreground of a terminal of their own.
STAYS = re.compile(r"^skep up$|skep\.testing\.site|^skep agent ", re.MULTILINE)
MARK = "=== ended"


@pytest.fixture(scope="module")
def site() -> Iterator[str]:
    command = [sys.executable, "-m", "skep.testing.site", "--pages=200"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        yield process.stdout.readline().strip()
        process.terminate()


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, CenterProcess]]:
    """A folder like a clone, with the data folder of a center that runs."""
    folder = tmp_path_factory.mktemp("clone")
    (folder / ".venv" / "bin").mkdir(parents=True)
    skep = folder / ".venv" / "bin" / "skep"
    skep.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m skep "$@"\n')
    skep.chmod(0o755)
    (folder / "examples").symlink_to(ROOT / "examples")
    with CenterProcess(folder / "skep-data", with_agent=True) as center:
        yield folder, center


def blocks(page: str, site: str, center: str) -> list[str]:
    """The shell blocks of a page that come back to the prompt."""
    text = (DOCS / page).read_text()
    found = re.findall(r"```sh\n(.*?)```", text, re.DOTALL)
    here = {"http://127.0.0.1:8420": center, "http://127.0.0.1:8421": site}
    for old, new in here.items():
        found = [block.replace(old, new) for block in found]
    return [block for block in found if not STAYS.search(block)]


def pasted(folder: Path, commands: list[str]) -> list[tuple[int, str]]:
    """(exit code, output) of each block, in one shell."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("SKEP_")}
    path = f"{folder / '.venv' / 'bin'}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        ["bash"],
        input="".join(f'{block}\necho "{MARK} $?"\n' for block in commands),
        cwd=folder,
        env={**kept, **QUICK, "PATH": path, "NO_COLOR": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=240,
        check=False,
    )
    parts = re.split(rf"{MARK} (\d+)\n", done.stdout)
    return [(int(code), said) for said, code in zip(parts[::2], parts[1::2], strict=False)]


def test_the_first_crawl(desk: tuple[Path, CenterProcess], site: str) -> None:
    """U12: every step works as it is written; step 5 finds the ids that it asks for."""
    folder, center = desk
    commands = blocks("first-crawl.md", site, center.url)
    ended = pasted(folder, commands)
    assert len(ended) == len(commands) == 8
    told = dict(zip(commands, ended, strict=True))
    refused = [code for code, _ in ended if code]
    assert refused == [2], told
    said = "\n".join(text for _, text in ended)
    for part in ("199 accepted = 199 done", "exit code 7", "is not a URL", '"blocks":1', "<html"):
        assert part in said, said
    assert re.search(r"^request \d+ of pages: dead$", said, re.MULTILINE)


def test_the_first_spider(desk: tuple[Path, CenterProcess], site: str) -> None:
    """U8: the spider of the page; the site is elsewhere, which `-a` of step 5 says."""
    folder, center = desk
    commands = blocks("first-spider.md", site, center.url)
    started = [f"{one.strip()} -a start_urls={site}/" for one in commands]
    ended = pasted(folder, started)
    assert [code for code, _ in ended] == [0, 0], ended
    assert "201 accepted = 201 done" in ended[0][1]
    assert len((folder / "pages.jsonl").read_text().splitlines()) == 200
