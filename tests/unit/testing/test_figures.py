"""The table of faults: which rows a test names, what it told, how it is laid out."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from skep.testing.figures import PROPERTY, FaultTable, Row, parse_rows, read_names, rows_in, told_in

ROOT = Path(__file__).parents[3]
TESTS = '''
"""Faults 7, 8: the module."""

import sys
import pytest


def tell(about, **figures):
    sys.stdout.write(f"FAULT {about}: {figures}\\n")


def test_one():
    """Fault 1: told."""
    tell("1", lost=0)


@pytest.mark.parametrize("case", range(3))
def test_three(case):
    """Faults 1, 2: not told."""


@pytest.mark.fault(4)
def test_marked():
    """Nothing named."""
    tell("4/5", late=1)
    tell("9", other=1)


def test_broken():
    """Fault 2."""
    assert False


def test_skipped():
    """Fault 3."""
    pytest.skip("not here")


def test_apart():
    """About something else."""
'''
#: Plug-ins that cost time at every start.
LEAN = ["-p", "no:cacheprovider", "-p", "no:asyncio", "-p", "no:hypothesispytest"]
LEAN += ["-p", "no:schemathesis"]
ROWS = "What can go wrong\n1 one\n2 two\n3 three\n4 four\n5 five\n"


@pytest.mark.parametrize(
    ("text", "rows"),
    [
        ("Fault 7: a beat", [7]),
        ("A7, faults 12, 18, 22: kill -9", [12, 18, 22]),
        ("Faults 16 and 19: decided within 3 s", [16, 19]),
        ("Fault 18, A4: 20 times", [18]),
        ("(faults 7, 8, and 9)", [7, 8, 9]),
        ("Default 7, without a fault, in 12 s", []),
        (None, []),
    ],
)
def test_rows_in_a_docstring(text: str | None, rows: list[int]) -> None:
    assert rows_in(text) == rows


def test_lines_that_were_told() -> None:
    output = "noise\nFAULT 4/6/30: pauses=3\nFAULT 12 held: a=1\nFAULT C6: x=1\nno FAULT 1: y"
    assert [line.rows for line in told_in(output)] == [[4, 6, 30], [12], []]


def report_of(test: str, told: str) -> pytest.TestReport:
    rows = [(PROPERTY, rows_in(test))]
    sections = [("Captured stdout call", told)]
    place = ("test_a.py", 1, test)
    return pytest.TestReport(
        test, place, {}, "passed", None, "call", sections, user_properties=rows
    )


def test_combinations_are_counted_once_and_fail_if_they_failed_once() -> None:
    table = FaultTable({76: "ends", 77: "parts"})
    table.add(report_of("fault 76, all", "FAULT 76: pair=a/page limit/b result=passed seconds=1\n"))
    told = "FAULT 76: pair=a/page limit/b result=passed\nFAULT 76: pair=a/c result=failed (x: y)\n"
    table.add(report_of("fault 76, some", told))
    table.add(report_of("fault 77", "FAULT 77: pair=a/c result=passed seconds=2\n"))
    assert table.pairs == {"76 a/page limit/b": True, "76 a/c": False, "77 a/c": True}
    assert list(table.lines())[-2] == "3 combinations, failed 1"


def test_rows_to_run() -> None:
    assert parse_rows("1-3,25") == {1, 2, 3, 25}
    assert parse_rows("") == set()
    with pytest.raises(ValueError, match="invalid literal"):
        parse_rows("a-b")


def test_every_row_of_ours_has_a_name() -> None:
    names = read_names(ROOT / "tests" / "failures" / "rows.txt")
    assert list(names) == list(range(1, 78))
    assert all(names.values())


def run(folder: Path, *more: str) -> subprocess.CompletedProcess[str]:
    (folder / "test_it.py").write_text(TESTS)
    (folder / "rows.txt").write_text(ROWS)
    (folder / "pytest.ini").write_text("[pytest]\nfault_rows = rows.txt\n")
    command = [sys.executable, "-m", "pytest", "-q", *LEAN, "-p", "skep.testing.figures", *more]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


def test_the_table_of_a_run(tmp_path: Path) -> None:
    """By mark or by docstring, from another process."""
    place = tmp_path / "faults.json"
    done = run(tmp_path, "-n", "1", "-m", "fault", "--faults", f"--faults-json={place}")
    rows = {row.row: row for row in msgspec.json.decode(place.read_bytes(), type=list[Row])}
    assert done.returncode == 1, done.stdout
    assert {row: [one.result for one in found.proofs] for row, found in rows.items()} == {
        1: ["passed"] * 4,
        2: ["failed"] + ["passed"] * 3,
        3: ["skipped"],
        4: ["passed"],
        5: [],
    }
    assert rows[1].proofs[0].figures == ["{'lost': 0}"]
    assert rows[4].proofs[0].figures == ["{'late': 1}"]
    assert "  5  five\n       no test\n" in done.stdout
    assert "passed  test_it.py::test_three 3 cases" in done.stdout
    assert "5 rows, tried 3, with a figure 2, failed 1" in done.stdout
    assert "test_apart" not in done.stdout


def test_some_rows_only(tmp_path: Path) -> None:
    done = run(tmp_path, "-m", "fault", "--faults", "--fault-rows=1,4-5")
    assert done.returncode == 0, done.stdout
    assert "3 rows, tried 2, with a figure 2, failed 0" in done.stdout
    assert "two" not in done.stdout
