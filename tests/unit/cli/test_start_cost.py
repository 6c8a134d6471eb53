"""U15: what a start does not pay for. Without a clock: modules, certificates, the way out."""

from __future__ import annotations

import ast
import json
import ssl
import subprocess
import sys
from pathlib import Path

import pytest

import skep
from skep.runtime.lazy_certificates import reading_later

ROOT = Path(skep.__file__).parent


def python(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=60
    )


def loaded(code: str) -> set[str]:
    """Every module that is there afterwards."""
    done = python(f"{code}\nimport json, sys; print(json.dumps(sorted(sys.modules)))")
    assert done.returncode == 0, done.stderr
    return set(json.loads(done.stdout.splitlines()[-1]))


@pytest.mark.parametrize(
    ("code", "unwanted"),
    [
        pytest.param(
            "import skep.cli.commands.crawl.run, skep.cli.commands.crawl.spider_start",
            {
                "aiohttp",
                "parsel",
                "lxml",
                "sqlalchemy",
                "skep.wire.client",
                "skep.spiders.authoring.spider",
            },
            id="run-before-its-center-is-begun",
        ),
        pytest.param(
            "import skep.embed.embedded, skep.store.sql.store, skep.store.sql.engine.migrate",
            {"aiohttp", "alembic", "yaml", "parsel", "sqlalchemy.dialects.postgresql"},
            id="center-on-sqlite",
        ),
    ],
)
def test_a_start_leaves_out_what_it_does_not_need_yet(code: str, unwanted: set[str]) -> None:
    """U15: each of these takes a part of the time until the first page."""
    assert not loaded(code) & unwanted


def test_everything_of_a_run_is_loaded_while_its_center_starts() -> None:
    """U15: nothing is left for the first page."""
    wanted = {
        "parsel",
        "aiohttp",
        "skep.spiders.session.session",
        "skep.cli.commands.crawl.run_summary",
        "skep.center.http.authentication",
    }
    assert wanted <= loaded("from skep.cli.commands.crawl.spider_start import load; load()")


def imports_of(file: Path) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and not node.level:
            found.add((node.module or "").partition(".")[0])
    return found


def test_aiohttp_is_imported_in_one_place() -> None:
    """U15: the first import decides whether all certificates are read."""
    files = [file for file in ROOT.rglob("*.py") if "testing" not in file.parts]
    users = [file.name for file in files if "aiohttp" in imports_of(file)]
    assert users == ["lazy_certificates.py"]


def test_the_certificates_are_read_with_the_first_connection() -> None:
    """U15: later, and not fewer."""
    usual = ssl.create_default_context()
    with reading_later():
        context = ssl.create_default_context()
    assert context.cert_store_stats()["x509"] == 0
    context.wrap_bio(ssl.MemoryBIO(), ssl.MemoryBIO(), server_hostname="example.org")
    assert context.cert_store_stats() == usual.cert_store_stats()
    assert context.verify_mode is ssl.CERT_REQUIRED
    assert context.check_hostname
    assert ssl.create_default_context().cert_store_stats() == usual.cert_store_stats()


LEAVING = """
import atexit, sys, threading
from skep.runtime.process_exit import Leaving

class Loud:
    def __del__(self):
        print("taken apart")

kept = Loud()
leaving = Leaving()
leaving.prepare()
atexit.register(print, "registered later")
done = threading.Event()
threading.Thread(target=lambda: done.wait(5) and print("thread")).start()
done.set()
leaving.code = {code}
sys.stdout.write("no newline at the end ")
sys.exit(leaving.code)
"""


def test_a_process_that_is_done_ends_at_once() -> None:
    """U15: threads and exit functions first, everything is written, nothing is taken apart."""
    done = python(LEAVING.format(code=7))
    assert done.returncode == 7
    assert "thread" in done.stdout
    assert "registered later" in done.stdout
    assert "no newline at the end" in done.stdout
    assert "taken apart" not in done.stdout


def test_a_process_that_fails_ends_as_ever() -> None:
    """U15: an unexpected error keeps its traceback and its exit code."""
    done = python(LEAVING.format(code="1 / 0"))
    assert done.returncode == 1
    assert "ZeroDivisionError" in done.stderr
    assert "taken apart" in done.stdout


def test_a_process_without_standard_output_keeps_its_exit_code() -> None:
    """U15: a service may be started with both files closed."""
    code = "from skep.runtime.process_exit import Leaving as L; a = L(); a.prepare(); a.code = 3"
    done = subprocess.run(
        ["sh", "-c", 'exec "$0" -c "$1" >&- 2>&-', sys.executable, code], check=False, timeout=60
    )
    assert done.returncode == 3
