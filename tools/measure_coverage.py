"""Run tests and print the line coverage of `skep/`: in total, and per room. Run by make.

The arguments go to pytest. Child processes are measured too, except for processes that are killed
with SIGKILL or run in a sandbox without an environment. A whole run fails below `LEAST` percent;
with tests named in the arguments there is no minimum.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
DATA = ROOT / ".coverage"
LEAST = 90.0


def room_of(path: str) -> str:
    """The first folder below `skep`; a file next to the rooms counts as a room."""
    parts = Path(path).parts
    below = parts[parts.index("skep") + 1 :]
    return below[0] if len(below) > 1 else Path(below[0]).stem


def table(report: Mapping[str, Any]) -> Iterator[str]:
    """One line per room, the least covered first, and the total."""
    lines: Counter[str] = Counter()
    covered: Counter[str] = Counter()
    for path, file in report["files"].items():
        lines[room_of(path)] += file["summary"]["num_statements"]
        covered[room_of(path)] += file["summary"]["covered_lines"]
    for room in sorted(lines, key=lambda name: _percent(covered[name], lines[name])):
        yield _line(room, covered[room], lines[room])
    yield _line("total", covered.total(), lines.total())


def _line(name: str, covered: int, lines: int) -> str:
    return f"{name:<16}{lines:>8} lines{_percent(covered, lines):>8.1f}%"


def _percent(covered: int, lines: int) -> float:
    return 100.0 * covered / lines if lines else 100.0


def measure(arguments: Sequence[str]) -> tuple[int, dict[str, Any]]:
    """Pytest's exit code, and the report of coverage.py."""
    shutil.rmtree(DATA, ignore_errors=True)
    DATA.mkdir()
    environment = {**os.environ, "SKEP_COVERAGE_ROOT": str(ROOT)}
    tests = _coverage(environment, "run", "-m", "pytest", "-q", *arguments)
    _coverage(environment, "combine", "--quiet")
    _coverage(environment, "json", "--quiet", "-o", str(DATA / "report.json"))
    return tests, json.loads((DATA / "report.json").read_text())


def _coverage(environment: Mapping[str, str], *words: str) -> int:
    command = [sys.executable, "-m", "coverage", *words]
    return subprocess.run(command, cwd=ROOT, env=environment, check=False).returncode  # noqa: S603 - our own arguments


def main(arguments: Sequence[str]) -> int:
    tests, report = measure(arguments)
    sys.stdout.write("\nline coverage of skep/, child processes included\n")
    sys.stdout.writelines(f"  {line}\n" for line in table(report))
    reached = report["totals"]["percent_covered"]
    if any("tests/" in word for word in arguments) or reached >= LEAST:
        return tests
    sys.stderr.write(f"coverage is {reached:.1f}%; the minimum is {LEAST:.0f}%\n")
    return tests or 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
