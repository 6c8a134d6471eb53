"""Expressions that try to take the process: memory, time, and a way out of the language."""

from __future__ import annotations

import json
import resource
import subprocess
import sys

import pytest

from skep.errors import InvalidInput
from skep.pipelines.expressions.expression import Expression, ExpressionFailed
from skep.testing.clock import ManualClock

#: A text of 90,000 characters and a list of as many, as a hostile message may have them.
MESSAGE = {
    "s": "a" * 90_000,
    "q": '"' * 90_000,
    "l": list(range(90_000)),
    "n": 10**18,
    "d": {"a": {}},
    "f": 1e308,
}
#: Each would build a gigabyte or run for minutes as plain Python.
BOMBS = [
    '"a" * 300000000',
    "300000000 * 'a'",
    "s * 10000000",
    "[0] * 300000000",
    "[[[[0] * 9999] * 9999] * 9999] * 9999",
    '"%300000000d" % 1',
    '"%*d" % (300000000, 1)',
    "9 ** 9 ** 9",
    "n ** n",
    "2 ** 99999999",
    "(n ** 14) ** 14",
    "10 ** -n",
    "n * n * n * n * n * n * n * n",
    " + ".join(["s"] * 30),
    'replace(s, "", s)',
    'replace(s, "a", s)',
    "join(s, l)",
    "json(json(json(json(json(q)))))",
    "l + l + l + l",
    "round(n, -300000000)",
    "round(n, n)",
    'int("9" * 90000)',
    "float(s)",
    "str(l)",
    "format_time(f)",
    "date(n)",
    'time("9" * 90000)',
    "sum([f, f]) * f",
    "f ** f",
    "sorted([l, s])",
    'from_json("[" * 90000)',
    "hash(" + "s, " * 100 + "s)",
    'matches(s, "(a?){300}a{300}")',
    'matches(s, "((a{1,30}){1,30}){1,30}$")',
    'matches(s, "(a*)*(a*)*(a*)*b")',
    'matches(s, "(.*)(.*)(.*)(.*)(.*)[^a]")',
    'extract(s, "(a|aa)+$")',
    'extract(s, "(x+x+)+y")',
    'split(s, "")',
    'len(split(s, "a"))',
]
#: Each looks for an object that leads out of the data.
ESCAPES = [
    "m.__class__",
    "__class__.__bases__[0].__subclasses__",
    "().__class__.__bases__",
    "len.__self__",
    "s.__init__.__globals__",
    '"{0.__class__}".format',
    "d.__dict__",
    "__builtins__",
    "__import__",
    "f_lower.__globals__",
    "op_add.__globals__",
    "ERRORS",
    "failed.__self__",
    "type",
    "t",
]
#: Each is refused before anything runs.
REFUSED = [
    '__import__("os").system("true")',
    '"{0.__class__}".format(s)',
    'f"{s.__class__}"',
    "(lambda: 1)()",
    "(x := 9)",
    "[x for x in l for y in l for z in l]",
    "{x for x in l}",
    "sum(x for x in l)",
    "type(s)",
    "getattr(s, 'x')",
    "eval('1')",
    "open('x')",
    "(yield 1)",
    "(await s)",
    "s[:] if 1 else [*l]",
    "print(1, file=s)",
    "1 if 1 else (lambda x: x)",
    "(" * 250 + "1" + ")" * 250,
    "-" * 3900 + "1",
    "[" * 90 + "]" * 90,
    "not " * 900 + "1",
    "a" + ".a" * 1900,
    "1" * 3990,
    "s\x00",
    "\\",
    "'\\N{DIGIT ONE",
]
CHILD = """
import json, resource, sys
resource.setrlimit(resource.RLIMIT_AS, (2**30, 2**30))
resource.setrlimit(resource.RLIMIT_CPU, (60, 60))
from tests.unit.pipelines.test_hostile_expressions import MESSAGE, BOMBS, outcome
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
said = {text: outcome(text) for text in BOMBS}
grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
print(json.dumps({"said": said, "grown": grown}))
"""


def outcome(text: str) -> str:
    """`refused`, `failed`, or the type of the value."""
    try:
        expression = Expression(text, ManualClock())
    except InvalidInput:
        return "refused"
    expression.test(MESSAGE)
    try:
        return type(expression.value(MESSAGE)).__name__
    except ExpressionFailed:
        return "failed"


def test_bombs_need_little_memory_and_end() -> None:
    """Each runs twice in a process with a gigabyte of memory and a minute for all of them."""
    done = subprocess.run(
        [sys.executable, "-c", CHILD], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert set(told["said"]) == set(BOMBS)
    assert told["grown"] < 100_000, "kilobytes"
    assert told["said"]['"a" * 300000000'] == "failed"
    small = {"str", "bool", "int", "float", "NoneType"}
    assert set(told["said"].values()) <= {"refused", "failed", *small}


@pytest.mark.parametrize("text", ESCAPES)
def test_no_name_leads_out_of_the_message(text: str) -> None:
    assert Expression(text, ManualClock()).value(MESSAGE) is None


@pytest.mark.parametrize("text", REFUSED, ids=lambda text: text[:40])
def test_syntax_with_power_is_refused(text: str) -> None:
    assert outcome(text) == "refused"


def test_the_code_of_an_expression_sees_no_builtins() -> None:
    test = Expression("lower(s)", ManualClock()).test
    assert test.__globals__["__builtins__"] == {}


def test_the_limits_of_this_test_hold() -> None:
    """The child would be killed: plain Python builds the text."""
    child = CHILD.split("from tests", maxsplit=1)[0] + "'a' * 2**31"
    done = subprocess.run([sys.executable, "-c", child], capture_output=True, check=False)
    assert done.returncode != 0
    assert resource.getrlimit(resource.RLIMIT_AS) != (2**30, 2**30)
