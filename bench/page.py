"""A result as a readable table, and all of them as docs/benchmarks.md. Pure but for `write`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bench.processes import ROOT

PAGE = ROOT / "docs" / "benchmarks.md"
INTRODUCTION = """# Benchmarks

Ours, a peer and the raw floor, measured by turns in one run; each figure is the median,
with the smallest and the largest sample beside it. Every bench checks that the work was
done whole. Rates depend on the machine and on its neighbours; ratios much less.

This page is written by `make bench`. One bench alone: `python -m bench NAME`, with `--json`
for programs; `python -m bench --list` names them all. `soak` stands apart, because it takes
as long as one lets it: [failures](why/failures.md) has its figures.
"""


def number(value: Any) -> str:
    """As a person writes it: 57,080 and 0.1226."""
    if value is None:
        return "-"
    if isinstance(value, bool) or not isinstance(value, int | float):
        return str(value)
    return f"{value:,.0f}" if abs(value) >= 1000 or value == int(value) else f"{value:.4g}"


def is_figure(value: Any) -> bool:
    return isinstance(value, Mapping) and set(value) == {"median", "min", "max"}


def shown(value: Any) -> str:
    """A figure with its spread, or anything else in a word or two."""
    if is_figure(value):
        return f"{number(value['median'])} ({number(value['min'])} to {number(value['max'])})"
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {shown(item)}" for key, item in value.items())
    return number(value)


def details(told: Mapping[str, Any], prefix: str = "") -> list[tuple[str, str]]:
    """(name, text) of everything; a group of figures becomes a line for each."""
    lines: list[tuple[str, str]] = []
    for key, value in told.items():
        nested = isinstance(value, Mapping) and any(isinstance(v, Mapping) for v in value.values())
        if nested and not is_figure(value):
            lines += details(value, f"{prefix}{key} ")
        else:
            lines.append((f"{prefix}{key}".replace("_", " "), shown(value)))
    return lines


def table(told: Mapping[str, Any]) -> str:
    """For a terminal."""
    lines = details(told)
    width = max(len(name) for name, _ in lines)
    return "\n".join(f"{name:<{width}}  {text}" for name, text in lines)


def page(results: Sequence[Mapping[str, Any]], machine: str) -> str:
    """The whole document."""
    parts = [INTRODUCTION, f"Machine: {machine}.\n", _summary(results)]
    parts += [_section(told) for told in results]
    return "\n".join(parts)


def _summary(results: Sequence[Mapping[str, Any]]) -> str:
    lines = ["| bench | unit | ours | peer | floor | ratio | bar | holds |", "|---" * 8 + "|"]
    for told in results:
        cells = [told[key] for key in ("ours", "peer", "floor", "ratio", "bar")]
        verdict = "yes" if told["ok"] else "**no**"
        middle = " | ".join(number(cell) for cell in cells)
        lines.append(f"| {told['name']} | {told['unit']} | {middle} | {verdict} |")
    return "\n".join([*lines, ""])


def _section(told: Mapping[str, Any]) -> str:
    lines = [f"## {told['name']}", "", f"Ratio: {told['meaning']}.", ""]
    lines += [f"    python -m bench {told['name']}", "", "| what | figure |", "|---|---|"]
    skipped = {"name", "meaning"}
    rest = {key: value for key, value in told.items() if key not in skipped}
    lines += [f"| {name} | {text} |" for name, text in details(rest)]
    return "\n".join([*lines, ""])


def write(results: Sequence[Mapping[str, Any]], machine: str, path: Path = PAGE) -> None:
    path.write_text(page(results, machine))
