"""A folder and a file can be read at one sitting: bounds on modules and on lines."""

from __future__ import annotations

import subprocess
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).parents[3]
MOST_MODULES = 25
LONGEST_FILE = 400
#: Folders whose files are counted.
COUNTED = ("skep", "tests", "bench", "tools")
#: Folders whose files have a longest length.
MEASURED = ("skep", "bench", "tools")


def python_files(*folders: str) -> list[str]:
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "--", *folders]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return [name for name in listed.splitlines() if name.endswith(".py") and (ROOT / name).exists()]


def test_a_package_has_few_modules() -> None:
    """`__init__` and migrations are not counted: a migration never moves."""
    counts = Counter(
        str(Path(name).parent)
        for name in python_files(*COUNTED)
        if Path(name).name != "__init__.py" and "migrations" not in Path(name).parts
    )
    assert {folder: count for folder, count in counts.items() if count > MOST_MODULES} == {}


def test_a_file_has_few_lines() -> None:
    sizes = {name: len((ROOT / name).read_text().splitlines()) for name in python_files(*MEASURED)}
    assert {name: size for name, size in sizes.items() if size > LONGEST_FILE} == {}
