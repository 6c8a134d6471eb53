"""User code is looked at before it is stored (D1), and none of it runs for that."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from skep.errors import InvalidInput
from skep.jobs.code_check import check_code
from skep.model.code import SOURCE_LIMIT, Code
from skep.model.run import RunSettings


def check(kind: str, source: str) -> None:
    check_code(RunSettings(downloader=kind, code=Code(source)))


@pytest.mark.parametrize(
    "source",
    [
        "def run(uri): ...",
        "async def run(uri, **more): ...",
        "from somewhere import run",
        "run = lambda uri: 1",
        "try:\n    from fast import run\nexcept ImportError:\n    def run(uri): ...",
        "x = '\\d'\nclass run: ...",
    ],
)
def test_python_that_has_a_run_is_taken(source: str) -> None:
    check("python", source)


@pytest.mark.parametrize(
    ("source", "why"),
    [
        ("def run(uri:\n  pass", "line 1: '(' was never closed"),
        ("def run(uri):\n return 1\n  x", "line 3: unexpected indent"),
        ("def other(uri): ...", "no function `run(uri, ...)`"),
        ("def outer():\n    def run(uri): ...", "no function `run(uri, ...)`"),
        ("def run(uri): ...\0", "NUL"),
        ("(" * 5000 + "def run(uri): ...", "line 1: too many nested parentheses"),
        ("x = " + "-" * 60_000 + "1\ndef run(uri): ...", "cannot be parsed"),
    ],
)
def test_python_that_is_wrong_is_refused_with_its_line(source: str, why: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        check("python", source)
    assert why in caught.value.detail


def test_nothing_is_executed_or_computed(tmp_path: Path) -> None:
    trap = tmp_path / "trap"
    check("python", f"open({str(trap)!r}, 'w')\nx = 9 ** 9 ** 9 ** 9\ndef run(uri): ...")
    check("shell", f"touch {trap}\n$(touch {trap})\n")
    assert not trap.exists()


def test_shell_syntax() -> None:
    check("shell", 'curl -s "$1" | head -c 100\n')
    with pytest.raises(InvalidInput, match=r"the shell code: .*(nterminated|unexpected)"):
        check("shell", 'echo "never closed\n')


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        (RunSettings(downloader="python"), "needs `code`"),
        (RunSettings(downloader="shell"), "needs `code`"),
        (RunSettings(code=Code("x")), "takes no `code`"),
        (RunSettings(curl=("-s",)), "takes no `curl` options"),
        (RunSettings(downloader="curl", curl=("-H", "A: b\nc: d")), "control character"),
    ],
)
def test_code_and_options_belong_to_their_kinds(settings: RunSettings, why: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        check_code(settings)
    assert why in caught.value.detail


def test_the_version_is_the_digest_of_the_text() -> None:
    assert Code("a").version == Code("a", network=True).version != Code("b").version


def test_the_size_of_code_is_bounded() -> None:
    data = msgspec.json.encode({"source": "x" * (SOURCE_LIMIT + 1)})
    with pytest.raises(msgspec.ValidationError):
        msgspec.json.decode(data, type=Code)
