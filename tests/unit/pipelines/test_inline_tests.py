"""Tests inside documents: `skep pipeline lint` and `test`, as people call them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from skep.pipelines.definitions.document_check import PipelineChecker
from skep.pipelines.inline_tests import run_tests
from skep.testing.clock import ManualClock

EXAMPLES = Path(__file__).parents[3] / "examples" / "pipelines"
DOCUMENT = """
name: one
inputs: in
operations: [{outputs: [{target: t, key: "=id", values: {n: =n}}]}]
tests:
  - name: wrong in every way
    broken: {}
    cases:
      - {message: {id: a, n: 1}, outputs: [{target: t, key: b, values: {n: 2, m: 1}}]}
      - {message: {id: a, n: 1}, outputs: []}
      - {message: {id: a, n: 1}, outcome: dropped}
      - {message: {n: 1}, outcome: dead, reason: another}
      - {message: {n: 1}, outcome: dead, stage: filter}
      - {message: {n: 1}, outcome: dead, outputs: [{target: t}]}
      - {message: {id: a}, outputs: [{target: t}]}
  - name: the output is down
    broken: {t: disk full}
    cases: [{message: {id: a}, outcome: failed, reason: disk full}]
"""


def skep(*arguments: str, text: str = "") -> tuple[int, str, str]:
    command = [sys.executable, "-m", "skep", "pipeline", *arguments]
    done = subprocess.run(command, input=text, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout.strip(), done.stderr.strip()


@pytest.mark.parametrize("command", ["lint", "test"])
def test_the_examples_pass(command: str) -> None:
    code, out, errors = skep(command, *map(str, sorted(EXAMPLES.glob("*.yaml"))))
    assert (code, errors) == (0, "")
    assert out.splitlines()[-1].endswith(("valid", " 0 failed"))


def test_failed_cases_say_what_was_expected() -> None:
    code, out, errors = skep("test", "-", text=DOCUMENT)
    assert (code, out) == (1, "stdin: one: 2 passed, 6 failed")
    said = [
        line.removeprefix("stdin: one: wrong in every way, case ") for line in errors.splitlines()
    ]
    assert said == [
        "1: output t: the key is 'a'; expected 'b'",
        "1: output t: n is 1; expected 2",
        "1: output t: m is absent; expected 1",
        '2: output t: not expected: {"n":1}',
        "3: outcome is out; expected dropped",
        "4: reason is 'values of t: the key is empty'; expected 'another' in it",
        "5: stage is operations; expected filter",
        "6: output t: nothing was written",
    ]


def test_answers_as_json() -> None:
    code, out, _ = skep("test", "-", "--json", text=DOCUMENT)
    [item] = json.loads(out)["items"]
    assert code == 1
    assert [len(case["problems"]) for case in item["cases"]] == [3, 1, 1, 1, 1, 1, 0, 0]


def test_an_invalid_document_is_not_tested() -> None:
    """S9: every problem with its path; bad input changes nothing."""
    text = "name: one\ninputs: []\nfilter: a b\n"
    for command in ("lint", "test"):
        code, out, errors = skep(command, "-", text=text)
        assert (code, out) == (2, "")
        places = [
            line.removeprefix("stdin: one: ").partition(":")[0] for line in errors.splitlines()
        ]
        assert sorted(places) == ["filter", "inputs", "operations"]
    code, out, _ = skep("lint", "-", "--json", text=text)
    assert (code, len(json.loads(out)["items"][0]["problems"])) == (2, 3)


@pytest.mark.parametrize(
    "text", ["", "- 5", "a: [", "name: &a [*a]", "[" * 5000, "5"], ids=lambda text: text[:10]
)
def test_text_that_is_not_a_document(text: str) -> None:
    code, out, errors = skep("lint", "-", text=text)
    assert (code, out) == (2, "")
    assert errors
    assert "Traceback" not in errors


async def test_what_a_case_stores_is_found_by_a_later_case() -> None:
    document = {
        "name": "p",
        "inputs": "in",
        "trace": {
            "id": "utm",
            "lookups": [{"store": "users", "key": "=user"}, {"store": "ips", "key": "=ip"}],
            "write_back": {"store": "users", "key": "=user"},
        },
        "operations": [{"outputs": [{"target": "t"}]}],
        "tests": [
            {
                "name": "t",
                "stores": {"ips": {"1.1.1.1": "x"}},
                "cases": [
                    {"message": {"user": "ada"}, "outcome": "dropped"},
                    {"message": {"user": "ada", "ip": "1.1.1.1"}},
                    {"message": {"user": "ada"}},
                ],
            }
        ],
    }
    made = PipelineChecker(ManualClock()).check(document)
    assert [one.problems for one in await run_tests(made)] == [(), (), ()]
