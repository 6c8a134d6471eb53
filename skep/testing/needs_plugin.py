"""A pytest plugin: the marker `needs`, and the list of tests that could not run on this machine.

Write `pytest_plugins = ["skep.testing.needs_plugin"]` into a conftest.py. ServerMissing and
NotPermitted from a test or a fixture skip or fail the test, as `needs` decides. The summary shows
the number of skipped tests, and each reason with its number; also if there are none.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator

import pytest

from skep.testing.grounds.isolation import code_setting
from skep.testing.needs import needs, unless_absent


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "needs(*names): what the machine must have or permit")
    # Commands that tests start read this variable; settings in a test use `code_setting`.
    if code_setting() == "always":
        os.environ.setdefault("SKEP_AGENT_CODE", "always")
        os.environ.setdefault("SKEP_JOBS_CODE", "always")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup(item: pytest.Item) -> Iterator[None]:
    for mark in item.iter_markers("needs"):
        needs(*mark.args)
    with unless_absent():
        yield


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call() -> Iterator[None]:
    with unless_absent():
        yield


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """The number of tests that could not run on this machine, and the reasons."""
    reports = [one for one in terminalreporter.stats.get("skipped", []) if _reason(one)]
    line = f"not tried on this machine: {len(reports)} tests"
    if not reports:
        terminalreporter.write_line(line)
        return
    terminalreporter.section(line)
    for reason, number in Counter(map(_reason, reports)).most_common():
        terminalreporter.write_line(f"{number:5}  {reason}")


def _reason(report: pytest.TestReport) -> str:
    where = report.longrepr
    return where[2].removeprefix("Skipped: ") if isinstance(where, tuple) else ""
