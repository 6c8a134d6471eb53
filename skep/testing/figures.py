"""A pytest plugin: the table of faults, from tests that name a row and report figures.

A test names its rows in its docstring ("Fault 7: ...", "Faults 6, 30: ...") or with
`@pytest.mark.fault(7)`, and reports figures with `skep.testing.fleet.tell("7", lost=0)`.
Write `pytest_plugins = ["skep.testing.figures"]` into a conftest.py, then

    pytest -m fault --faults [--fault-rows 1-21] [--faults-json FILE]

prints every row with its tests, their results and their figures, and rows without a test. Each
figure with a `pair` (`tell("76", pair="a/b", result="passed")`) is one combination of a matrix; the
last line but one shows how many were tried and failed. It reads the output of tests, so it finds no
figures with `-s`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

import msgspec
import pytest

PROPERTY = "fault_rows"
#: "Fault 7", "faults 6, 30", "Faults 16 and 19".
_NAMED = re.compile(r"\b[Ff]aults? (\d+(?:(?:, | and |, and )\d+)*)\b")
_TOLD = re.compile(r"^FAULT ([^:]+): (.*)$", re.MULTILINE)
_PAIR = re.compile(r"\bpair=(.+?) result=(\w+)")
_NUMBER = re.compile(r"(?<!\w)\d+(?!\w)")


class Proof(msgspec.Struct):
    """One test of one row: its result and its figures."""

    test: str
    result: str
    figures: list[str]
    seconds: float


class Row(msgspec.Struct):
    """A fault and all its tests."""

    row: int
    fault: str
    proofs: list[Proof]


class Told(NamedTuple):
    """A line of a test, and its rows."""

    rows: list[int]
    text: str


def rows_in(text: str | None) -> list[int]:
    """The rows that a docstring names."""
    lists = _NAMED.findall(text or "")
    return sorted({int(number) for one in lists for number in re.findall(r"\d+", one)})


def told_in(output: str) -> list[Told]:
    """The lines that `tell` printed."""
    return [
        Told([int(number) for number in _NUMBER.findall(about)], text)
        for about, text in _TOLD.findall(output)
    ]


def parse_rows(words: str) -> set[int]:
    """`1-21,25` as a set of numbers; raises ValueError."""
    wanted: set[int] = set()
    for part in filter(None, words.split(",")):
        first, _, last = part.partition("-")
        wanted.update(range(int(first), int(last or first) + 1))
    return wanted


def read_names(path: Path) -> dict[int, str]:
    """Rows by number, from lines such as `7 the center is down`."""
    lines = (line.partition(" ") for line in path.read_text().splitlines() if line[:1].isdigit())
    return {int(number): name.strip() for number, _, name in lines}


class FaultTable:
    """Collects reports and groups them by row."""

    def __init__(self, names: Mapping[int, str], wanted: Iterable[int] = ()) -> None:
        self._names = dict(names)
        self._wanted = set(wanted)
        self._proofs: dict[int, dict[str, Proof]] = {}

    def add(self, report: pytest.TestReport) -> None:
        """Add one phase of one test; the worst result counts."""
        rows = dict(report.user_properties).get(PROPERTY) or []
        for row in rows if isinstance(rows, list) else []:
            fresh = Proof(report.nodeid, "passed", [], 0.0)
            proof = self._proofs.setdefault(row, {}).setdefault(report.nodeid, fresh)
            proof.seconds += report.duration
            if report.outcome != "passed":
                proof.result = report.outcome
            if report.when == "call":
                told = told_in(report.capstdout)
                proof.figures += [line.text for line in told if row in line.rows]

    @property
    def rows(self) -> list[Row]:
        """By number; every named row, and every other row with a test."""
        numbers = self._wanted or (self._names.keys() | self._proofs.keys())
        return [
            Row(number, self._names.get(number, ""), self._proofs_of(number))
            for number in sorted(numbers)
        ]

    def _proofs_of(self, number: int) -> list[Proof]:
        return [proof for _, proof in sorted(self._proofs.get(number, {}).items())]

    def lines(self) -> Iterator[str]:
        """As text."""
        for row in self.rows:
            yield f"{row.row:3}  {row.fault}"
            if not row.proofs:
                yield "       no test"
            yield from _lines_of(row.proofs)
        if pairs := self.pairs:
            yield f"{len(pairs)} combinations, failed {sum(not good for good in pairs.values())}"
        yield self.summary()

    @property
    def pairs(self) -> dict[str, bool]:
        """Combinations that were tried, and whether each passed every time."""
        found: dict[str, bool] = {}
        for row in self.rows:
            for figure in (figure for proof in row.proofs for figure in proof.figures):
                if told := _PAIR.search(figure):
                    name, result = f"{row.row} {told[1]}", told[2]
                    found[name] = found.get(name, True) and result == "passed"
        return found

    def summary(self) -> str:
        rows = self.rows
        tried = [row for row in rows if any(p.result != "skipped" for p in row.proofs)]
        failed = [row for row in tried if any(p.result == "failed" for p in row.proofs)]
        told = [row for row in tried if any(p.figures for p in row.proofs)]
        return (
            f"{len(rows)} rows, tried {len(tried)}, with a figure {len(told)}, failed {len(failed)}"
        )

    def json(self) -> bytes:
        return msgspec.json.format(msgspec.json.encode(self.rows), indent=1)


def _lines_of(proofs: Sequence[Proof]) -> Iterator[str]:
    """One line for all cases of a test with the same result and no figure."""
    for (test, result, _), several in groupby(proofs, key=_alike):
        cases = list(several)
        seconds = sum(one.seconds for one in cases)
        many = f" {len(cases)} cases" if len(cases) > 1 else ""
        yield f"       {result:<8}{test}{many}  ({seconds:.1f} s)"
        yield from (f"               {figure}" for one in cases for figure in one.figures)


def _alike(proof: Proof) -> tuple[str, str, bool]:
    test = proof.test.removeprefix("tests/")
    return test if proof.figures else test.partition("[")[0], proof.result, not proof.figures


def rows_of(item: pytest.Item) -> list[int]:
    """By marker and by docstring, else by the docstring of the module if no test names any."""
    marked = {int(row) for mark in item.iter_markers("fault") for row in mark.args}
    function = getattr(item, "function", None)
    module = getattr(item, "module", None)
    if found := marked.union(rows_in(getattr(function, "__doc__", None))):
        return sorted(found)
    if module is None or _tests_name_rows(module):
        return []
    return rows_in(module.__doc__)


def _tests_name_rows(module: ModuleType) -> bool:
    tests = (value for name, value in vars(module).items() if name.startswith("test_"))
    return any(rows_in(getattr(test, "__doc__", None)) for test in tests)


# The hooks, which pytest calls.


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("faults")
    group.addoption("--faults", action="store_true", help="print the table of faults")
    group.addoption("--fault-rows", default="", help="only tests of these rows, as 1-21,25")
    group.addoption("--faults-json", default="", help="write the table of faults to this file")
    parser.addini("fault_rows", "a file with a line for each row: its number and its fault")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "fault(*rows): proves these rows of the table of faults")
    words, names = config.getoption("--fault-rows"), str(config.getini("fault_rows"))
    known = read_names(config.rootpath / names) if names else {}
    config.stash[_TABLE] = FaultTable(known, parse_rows(words))


@pytest.hookimpl(tryfirst=True)  # before `-m fault` selects
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    for item in items:
        if rows := rows_of(item):
            item.add_marker(pytest.mark.fault(*rows))
            # Part of every report, also from other processes.
            item.user_properties.append((PROPERTY, rows))
    if wanted := parse_rows(config.getoption("--fault-rows")):
        kept = [item for item in items if wanted & set(_rows_kept(item))]
        config.hook.pytest_deselected(items=[item for item in items if item not in kept])
        items[:] = kept


def _rows_kept(item: pytest.Item) -> Sequence[int]:
    rows = dict(item.user_properties).get(PROPERTY)
    return rows if isinstance(rows, list) else []


@pytest.hookimpl(tryfirst=True)
def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    table = config.stash[_TABLE]
    for reports in terminalreporter.stats.values():
        for report in reports:
            if isinstance(report, pytest.TestReport):
                table.add(report)
    if config.getoption("--faults"):
        terminalreporter.section("table of faults")
        for line in table.lines():
            terminalreporter.write_line(line)
    if place := config.getoption("--faults-json"):
        Path(place).write_bytes(table.json())


_TABLE = pytest.StashKey[FaultTable]()
