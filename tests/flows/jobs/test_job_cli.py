"""`skep job` as people type it, against a real center with an agent."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from skep.testing.polling import until
from skep.testing.processes import CenterProcess
from skep.testing.site import DemoSite

EXAMPLES = Path(__file__).parents[3] / "examples"


@pytest.fixture(scope="module")
def center(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CenterProcess]:
    env = {"SKEP_JOBS_FOLDER": str(EXAMPLES), "SKEP_JOBS_KEEP_EVERY": "0.1"}
    folder = tmp_path_factory.mktemp("center")
    with CenterProcess(folder, env, with_agent=True) as running:
        yield running


async def skep(
    center: CenterProcess, *arguments: str, text: str = "", **env: str
) -> tuple[int, str, str]:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "skep", "job", *arguments,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env={**os.environ, "SKEP_DATA": str(center.folder), **env},
    )  # fmt: skip
    async with asyncio.timeout(60):
        out, errors = await process.communicate(text.encode())
    return process.returncode or 0, out.decode().strip(), errors.decode().strip()


async def data(center: CenterProcess, *arguments: str) -> Any:
    code, out, errors = await skep(center, *arguments, "--json")
    assert code == 0, errors
    return msgspec.json.decode(out)


def document(name: str, *urls: str, more: str = "") -> str:
    return f"name: {name}\nrequests: [{', '.join(urls)}]\n{more}"


async def test_apply_says_what_it_did(center: CenterProcess, tmp_path: Path) -> None:
    """D1: created, changed, unchanged; a dry run keeps nothing."""
    file = tmp_path / "jobs.yaml"
    file.write_text(document("one", "http://a/") + "---\n" + document("two", "http://b/"))
    code, out, _ = await skep(center, "apply", str(file), "--dry-run")
    assert (code, out.splitlines()[0]) == (0, "one would be created")
    assert (await skep(center, "show", "one"))[0] == 3, "nothing was kept"
    code, out, _ = await skep(center, "apply", str(file))
    assert (code, out) == (0, "created one (revision 1)\ncreated two (revision 1)")
    file.write_text(document("one", "http://a/") + "---\n" + document("two", "http://c/"))
    code, out, _ = await skep(center, "apply", str(file))
    assert (code, out) == (0, "unchanged one (revision 1)\nchanged two (revision 2)")
    code, out, _ = await skep(center, "diff", "two")
    assert (code, "-- http://b/\n+- http://c/" in out) == (0, True)
    lines = (await data(center, "history", "two"))["items"]
    assert [line["what"] for line in lines] == ["changed", "created"]
    code, out, _ = await skep(center, "ls")
    assert [line.split()[0] for line in out.splitlines()] == ["JOB", "one", "two"]
    code, out, _ = await skep(center, "show", "two")
    again = await skep(center, "apply", "-", text=out)
    assert again[:2] == (0, "unchanged two (revision 2)"), "what is shown can be applied"
    code, out, _ = await skep(center, "rm", "one", "two")
    assert (code, out) == (0, "deleted one (revision 2)\ndeleted two (revision 3)")
    assert (await skep(center, "ls"))[1].startswith("no jobs yet")


async def test_one_bad_document_stops_all(center: CenterProcess, tmp_path: Path) -> None:
    """D1: every fault with file, job and path; nothing is kept."""
    good, bad = tmp_path / "good.yaml", tmp_path / "bad.yaml"
    good.write_text(document("fine", "http://a/"))
    bad.write_text(document("wrong", "nonsense", more="settings: {retries: x}\n"))
    code, out, errors = await skep(center, "apply", str(good), str(bad))
    assert (code, out) == (2, "")
    assert f"{bad}: wrong: settings.retries: " in errors
    assert f"{bad}: wrong: requests[0]: " in errors
    assert (await skep(center, "show", "fine"))[0] == 3
    code, _, errors = await skep(center, "lint", str(good), str(bad))
    assert (code, errors.count("\n")) == (2, 1)
    code, out, _ = await skep(center, "lint", str(good), "--json")
    assert (code, msgspec.json.decode(out)["items"][0]["faults"]) == (0, [])
    bad.write_text("name: [")
    assert (await skep(center, "lint", str(bad)))[0] == 2
    assert (await skep(center, "lint", str(tmp_path / "absent.yaml")))[0] == 1


async def test_what_only_the_center_knows_is_told_too(center: CenterProcess) -> None:
    text = "name: far\nspider: absent.py\n"
    code, _, errors = await skep(center, "apply", "-", text=text)
    assert (code, "stdin: far: spider.path: cannot read" in errors) == (2, True), errors


async def test_run_waits_and_says_how_it_ended(center: CenterProcess) -> None:
    async with DemoSite(pages=20) as site:
        urls = site.page_urls()
        await skep(center, "apply", "-", text=document("twenty", *urls))
        code, out, errors = await skep(center, "run", "twenty", "--wait", "--timeout", "50")
        assert (code, out.endswith("finished: 20 done, 0 dead")) == (0, True), errors
        await skep(center, "apply", "-", text=document("gone", f"{site.url}/status/404"))
        assert (await skep(center, "run", "gone", "--wait"))[0] == 1, "none is done (U6)"
        first = await skep(center, "run", "twenty", "--key", "monday")
        assert first == await skep(center, "run", "twenty", "--key", "monday")
        spider = (EXAMPLES / "jobs.yaml").read_text().replace("http://127.0.0.1:8421", site.url)
        assert (await skep(center, "apply", "-", text=spider))[0] == 0
        code, out, errors = await skep(center, "run", "demo-crawl", "--wait")
        assert (code, "finished" in out) == (0, True), errors
    await until((center.folder / "items" / "demo-pages.jsonl").exists)
    assert (await skep(center, "pause", "twenty"))[0] == 5, "it has no run that is running"
    assert (await skep(center, "run", "absent"))[0] == 3


async def test_edit_keeps_what_was_typed(center: CenterProcess, tmp_path: Path) -> None:
    await skep(center, "apply", "-", text=document("draft", "http://a/", more="note: old\n"))
    script = tmp_path / "editor.py"
    editor = f"{sys.executable} {script}"
    script.write_text(
        "import pathlib, sys\nfile = pathlib.Path(sys.argv[1])\n"
        "file.write_text(file.read_text().replace('note: old', 'note: new'))\n"
    )
    code, out, _ = await skep(center, "edit", "draft", EDITOR=editor, VISUAL="")
    assert (code, out) == (0, "changed draft (revision 2)")
    code, out, _ = await skep(center, "edit", "draft", EDITOR="true", VISUAL="")
    assert (code, out) == (0, "unchanged draft")
    script.write_text(
        "import pathlib, sys\nfile = pathlib.Path(sys.argv[1])\nfile.write_text('name: draft')\n"
    )
    env = {"EDITOR": editor, "VISUAL": "", "TMPDIR": str(tmp_path)}
    code, _, errors = await skep(center, "edit", "draft", **env)
    assert (code, "your text is in " in errors) == (2, True), errors
    (kept,) = tmp_path.glob("draft-*.yaml")  # noqa: ASYNC240 - a folder of the test
    assert kept.read_text() == "name: draft"
    assert kept.stat().st_mode & 0o077 == 0, "a job may hold passwords"
    code, _, errors = await skep(center, "edit", "draft", EDITOR="", VISUAL="")
    assert (code, "EDITOR" in errors) == (2, True)
