"""Reads, checks and tests pipeline files. Imported when `skep pipeline` needs it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from skep.cli.commands.jobs.job_files import Document, read_files
from skep.cli.terminal.exit_codes import ExitCode
from skep.cli.terminal.output import say, show, show_json
from skep.model.pipelines.document import Pipeline
from skep.pipelines.definitions.document_check import PipelineChecker
from skep.pipelines.inline_tests import CaseResult, run_tests
from skep.runtime.clock import SystemClock


@dataclass(frozen=True, slots=True)
class Judged:
    """A document, the pipeline that it describes, and its problems."""

    document: Document
    pipeline: Pipeline | None
    problems: list[str]

    def told(self) -> dict[str, object]:
        name = self.document.name
        return {"file": self.document.file, "pipeline": name, "problems": self.problems}


def _judged(files: Sequence[Path]) -> list[Judged]:
    checker = PipelineChecker(SystemClock())
    found = []
    for document in read_files(files):
        pipeline, problems = checker.judge(document.data)
        found.append(Judged(document, pipeline, [str(problem) for problem in problems]))
    return found


def _say_problems(judged: Sequence[Judged]) -> None:
    for one in judged:
        for problem in one.problems:
            say(f"{one.document.where}: {problem}")


def lint_files(files: Sequence[Path], *, as_json: bool) -> int:
    """Return the exit code: 0 if every document is valid."""
    judged = _judged(files)
    if as_json:
        show_json({"items": [one.told() for one in judged]})
    else:
        _say_problems(judged)
    if any(one.problems for one in judged):
        return ExitCode.USAGE
    if not as_json:
        show(f"{len(judged)} valid")
    return ExitCode.OK


def test_files(files: Sequence[Path], *, as_json: bool) -> int:
    """Return the exit code: 0 if every document is valid and every case passed."""
    judged = _judged(files)
    if any(one.problems for one in judged):
        _say_problems(judged)
        return ExitCode.USAGE
    results = [(one, asyncio.run(run_tests(one.pipeline))) for one in judged if one.pipeline]
    if as_json:
        show_json({"items": [{**one.told(), "cases": cases} for one, cases in results]})
    else:
        _show_results(results)
    failed = any(case.problems for _, cases in results for case in cases)
    return ExitCode.FAILED if failed else ExitCode.OK


def _show_results(results: Sequence[tuple[Judged, list[CaseResult]]]) -> None:
    for one, cases in results:
        for case in cases:
            for problem in case.problems:
                say(f"{one.document.where}: {case.test}, case {case.case}: {problem}")
        failed = sum(bool(case.problems) for case in cases)
        show(f"{one.document.where}: {len(cases) - failed} passed, {failed} failed")
