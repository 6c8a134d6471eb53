"""User code is looked at before it is stored (D1), and none of it runs for that."""

from __future__ import annotations

import ast
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event, Thread

import msgspec
import pytest

from skep.errors import InvalidInput
from skep.jobs.definitions import code_parse
from skep.jobs.definitions.code_check import check_code
from skep.model.run import RunSettings
from skep.model.user_code import SOURCE_LIMIT, Code


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


@contextmanager
def longest_stall() -> Iterator[list[float]]:
    """The longest time in which another thread did not get to run."""
    stalls, over = [0.0], Event()

    def watch() -> None:
        last = time.monotonic()
        while not over.wait(0.005):
            stalls.append(time.monotonic() - last)
            last = time.monotonic()

    thread = Thread(target=watch)
    thread.start()
    try:
        yield stalls
    finally:
        over.set()
        thread.join()


def test_code_that_is_slow_to_parse_does_not_stop_other_threads() -> None:
    """S13: 127 KB of nested calls held the lock of the interpreter for seconds."""
    nested = "f(" * 90 + "1" + ")" * 90 + "\n"
    source = "def run(uri): ...\n" + nested * (127 * 1024 // len(nested))
    assert len(source) > 120_000
    alone = time.monotonic()
    ast.parse(source)
    alone = time.monotonic() - alone
    with longest_stall() as stalls:
        check("python", source)
    assert max(stalls) < alone / 2


def test_long_code_is_told_as_short_code_is() -> None:
    """S13: what a child process parses has the same lines and the same names."""
    filler = "# é and more\n" * 1000
    check("python", filler + "async def run(uri): ...")
    with pytest.raises(InvalidInput, match="line 1001: '\\(' was never closed"):
        check("python", filler + "def run(uri:\n  pass")
    with pytest.raises(InvalidInput, match="no function"):
        check("python", filler + "def other(uri): ...")
    with pytest.raises(InvalidInput, match="cannot be parsed"):
        check("python", filler + "x = " + "-" * 60_000 + "1\ndef run(uri): ...")


def test_code_that_takes_too_long_to_parse_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """S13."""
    monkeypatch.setattr(code_parse, "PARSE_SECONDS", 0.001)
    with pytest.raises(InvalidInput, match="make it smaller"):
        check("python", "def run(uri): ...\n" + "x = 1\n" * 10_000)
