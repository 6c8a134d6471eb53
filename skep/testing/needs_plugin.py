"""A pytest plugin: the marker `needs`, and the list of tests that this machine could not try.

Write `pytest_plugins = ["skep.testing.needs_plugin"]` into a conftest.py. The list at the end
of a run gives each reason with the number of tests that it skipped.
"""

from __future__ import annotations

import os
from collections import Counter

import pytest

from skep.testing.isolation import code_setting
from skep.testing.needs import needs


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "needs(*names): what the machine must have or permit")
    # Commands that tests start read this; settings made in a test ask `code_setting`.
    if code_setting() == "always":
        os.environ.setdefault("SKEP_AGENT_CODE", "always")
        os.environ.setdefault("SKEP_JOBS_CODE", "always")


def pytest_runtest_setup(item: pytest.Item) -> None:
    for mark in item.iter_markers("needs"):
        needs(*mark.args)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """The tests that this machine could not try, by reason."""
    reports = [one for one in terminalreporter.stats.get("skipped", []) if _reason(one)]
    if not reports:
        return
    terminalreporter.section(f"not tried on this machine: {len(reports)} tests")
    for reason, number in Counter(map(_reason, reports)).most_common():
        terminalreporter.write_line(f"{number:5}  {reason}")


def _reason(report: pytest.TestReport) -> str:
    where = report.longrepr
    return where[2].removeprefix("Skipped: ") if isinstance(where, tuple) else ""
