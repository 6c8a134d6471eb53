"""A result as a table, and all results as docs/benchmarks.md. Pure, except for `write`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bench.processes import ROOT

PAGE = ROOT / "docs" / "benchmarks.md"
INTRODUCTION = """# Benchmarks

Each benchmark alternates Skep ("ours"), a peer and the raw floor in one run. Each figure is the
median, with the smallest and the largest sample. Every benchmark checks that all work was
completed. Rates depend on the machine and on other load; ratios depend on them much less.

`make bench` writes this page. Run one benchmark with `python -m bench NAME`, add `--json` for
programs, and list all of them with `python -m bench --list`. `soak` is not included, because you
choose its duration; [failures](why/failures.md) has its figures.
"""


def number(value: Any) -> str:
    """A readable number: 57,080 and 0.1226."""
    if value is None:
        return "-"
    if isinstance(value, bool) or not isinstance(value, int | float):
        return str(value)
    return f"{value:,.0f}" if abs(value) >= 1000 or value == int(value) else f"{value:.4g}"


def is_figure(value: Any) -> bool:
    return isinstance(value, Mapping) and set(value) == {"median", "min", "max"}


def shown(value: Any) -> str:
    """A figure with its spread, or a short text."""
    if is_figure(value):
        return f"{number(value['median'])} ({number(value['min'])} to {number(value['max'])})"
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {shown(item)}" for key, item in value.items())
    return number(value)


def details(told: Mapping[str, Any], prefix: str = "") -> list[tuple[str, str]]:
    """(name, text) of everything; each figure of a group has its own line."""
    lines: list[tuple[str, str]] = []
    for key, value in told.items():
        nested = isinstance(value, Mapping) and any(isinstance(v, Mapping) for v in value.values())
        if nested and not is_figure(value):
            lines += details(value, f"{prefix}{key} ")
        else:
            lines.append((f"{prefix}{key}".replace("_", " "), shown(value)))
    return lines


def table(told: Mapping[str, Any]) -> str:
    """The result as a table for a terminal."""
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
