"""`make coverage`: the table that it prints."""

from __future__ import annotations

from typing import Any

from tools.measure_coverage import room_of, table


def file(lines: int, covered: int) -> dict[str, Any]:
    return {"summary": {"num_statements": lines, "covered_lines": covered}}


def test_rooms_and_the_total() -> None:
    """The least covered room comes first."""
    report = {
        "files": {
            "skep/settings.py": file(10, 10),
            "skep/store/sql/runs/runs.py": file(30, 24),
            "skep/store/ports.py": file(10, 10),
            "skep/lanes/__init__.py": file(0, 0),
        }
    }
    rows = [" ".join(line.split()) for line in table(report)]
    assert rows == [
        "store 40 lines 85.0%",
        "settings 10 lines 100.0%",
        "lanes 0 lines 100.0%",
        "total 50 lines 88.0%",
    ]


def test_a_folder_of_the_same_name_above_the_package() -> None:
    assert room_of("skep/cli/main.py") == "cli"
    assert room_of("skep/__main__.py") == "__main__"
