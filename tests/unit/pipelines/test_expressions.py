"""What expressions mean: fields, absent fields, functions, errors, and what they refuse."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from skep.errors import InvalidInput
from skep.pipelines.expressions.expression import Expression, ExpressionFailed
from skep.pipelines.expressions.functions import NAMES, PLAIN
from skep.testing.clock import ManualClock

MESSAGE: dict[str, Any] = {
    "event": "click",
    "score": 60,
    "price": 2.5,
    "tags": ["a", "b", "c"],
    "user": {"name": "Ada", "geo": {"country": "de"}},
    "headers": {"x-ip": "10.0.0.1"},
    "url": "https://example.org/a?b=1",
    "nothing": None,
}


def made(text: str) -> Expression:
    return Expression(text, ManualClock(now=1_700_000_000.0))


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('event == "click" and score >= 50', True),
        ("score + 1", 61),
        ("score - price * 2", 55.0),
        ("score // 7, score % 7, 2 ** 10, -score", (8, 4, 1024, -60)),
        ("user.geo.country", "de"),
        ('headers["x-ip"]', "10.0.0.1"),
        ("tags[0] + tags[-1]", "ac"),
        ("tags[1:]", ["b", "c"]),
        ("user.name[:2]", "Ad"),
        ('"x" * 3', "xxx"),
        ('"high" if score > 50 else "low"', "high"),
        ('"b" in tags and "z" not in tags', True),
        ('event in {"click", "view"}', True),
        ("0 < score < 100", True),
        ('{"name": user.name, "n": [score]}', {"name": "Ada", "n": [60]}),
        ("score is not None", True),
    ],
)
def test_values(text: str, value: object) -> None:
    assert made(text).value(MESSAGE) == value


@pytest.mark.parametrize(
    "text",
    [
        "missing",
        "missing.deeper.still",
        "event.no_mapping",
        "tags.name",
        'user["no such key"]',
        "tags[99]",
        "tags[-99]",
        "user[tags]",
        "missing[0]",
        "missing[1:2]",
        "nothing.name",
    ],
)
def test_an_absent_field_is_none(text: str) -> None:
    expression = made(f"{text} is None")
    assert expression.value(MESSAGE) is True
    assert not expression.errors


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("missing >= 50", "the field 'missing' is absent"),
        ("user.missing >= 50", "the field 'missing' is absent"),
        ("event > 5", "'>' not supported between instances of 'str' and 'int'"),
        ("nothing + 1 > 0", "unsupported operand"),
        ("score / 0", "division by zero"),
        ("int(event)", "not a valid value"),
        ("lower(score)", "needs a text, not int"),
        ("'a' in missing", "not iterable"),
        ("tags * 3", "* is not supported for list and int"),
        ('"%s" % 1', "% is not supported for str and int"),
    ],
)
def test_an_error_is_false_and_counted(text: str, reason: str) -> None:
    """S3: a filter that cannot be evaluated drops the message and says why."""
    expression = made(text)
    assert [expression.test(MESSAGE), expression.test(MESSAGE)] == [False, False]
    assert [(reason in said, count) for said, count in expression.errors.items()] == [(True, 2)]
    with pytest.raises(ExpressionFailed, match=reason.replace("*", r"\*")):
        expression.value(MESSAGE)


@pytest.mark.parametrize("wrong", [0, "", [], {}, None, 0.0])
def test_a_test_is_true_or_false(wrong: object) -> None:
    assert made("field").test({"field": wrong}) is False
    assert made("not field").test({"field": wrong}) is True


EXAMPLES = [
    ("abs(-3)", 3),
    ("all(tags)", True),
    ("any([])", False),
    ("bool(event)", True),
    ("coalesce(missing, nothing, event)", "click"),
    ('contains(event, "li")', True),
    ("date(86400)", "1970-01-02"),
    ('endswith(event, "ck")', True),
    ('extract(url, "//([a-z.]+)/")', "example.org"),
    ('extract(url, "[0-9]+")', "1"),
    ('extract(url, "zzz")', None),
    ('float("2.5")', 2.5),
    ("format_time(0)", "1970-01-01T00:00:00Z"),
    ('from_json("[1]")', [1]),
    ("hash(1, 'a') == hash(1, 'a')", True),
    ("hash('ab', 'c') == hash('a', 'bc')", False),
    ("host(url)", "example.org"),
    ('int("12")', 12),
    ('join("-", tags)', "a-b-c"),
    ("json(tags)", '["a","b","c"]'),
    ("keys(user)", ["name", "geo"]),
    ("len(tags)", 3),
    ("lower('ABC')", "abc"),
    ('matches(event, "^cl")', True),
    ("max(1, 3, 2)", 3),
    ("max([1, 3, 2])", 3),
    ("min(tags)", "a"),
    ("now()", 1_700_000_000.0),
    ('replace(event, "c", "k")', "klikk"),
    ("round(2.6)", 3),
    ("round(score)", 60),
    ("round(2.567, 1)", 2.6),
    ("sorted([3, 1, 2])", [1, 2, 3]),
    ('split("a,b", ",")', ["a", "b"]),
    ('startswith(event, "cl")', True),
    ("str(True) + str(None) + str(1)", "true1"),
    ('strip(" a ")', "a"),
    ("sum([1, 2.5])", 3.5),
    ('time("1970-01-01T01:00:00+01:00")', 0.0),
    ('time("1970-01-02")', 86400.0),
    ('upper("a")', "A"),
]


@pytest.mark.parametrize(("text", "value"), EXAMPLES)
def test_functions(text: str, value: object) -> None:
    assert made(text).value(MESSAGE) == value


def test_every_function_has_an_example_above() -> None:
    assert {text.partition("(")[0] for text, _ in EXAMPLES} == NAMES
    assert set(PLAIN) < NAMES


def test_the_fields_of_an_expression_are_known() -> None:
    found = made('user.geo.country == "de" and len(headers["x-ip"]) > 1 and tags[0] == event')
    assert found.fields == {"user.geo.country", "headers.x-ip", "tags", "event"}


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "not an expression"),
        ("a b", "not an expression"),
        ("a = 1", "not an expression"),
        ("import os", "not an expression"),
        ("lambda: 1", "lambda cannot be used"),
        ("[x for x in tags]", "comprehensions cannot be used"),
        ("{x: 1 for x in tags}", "comprehensions cannot be used"),
        ("any(x for x in tags)", "comprehensions cannot be used"),
        ("(x := 1)", ":= cannot be used"),
        ('f"{event}"', "f-strings cannot be used"),
        ("print(1)", "there is no function 'print'"),
        ("lowr(event)", "did you mean 'lower'"),
        ("event.upper()", "values have no methods"),
        ("len(tags)(1)", "values have no methods"),
        ("lower(text=event)", "arguments have no names"),
        ("max(*tags)", "* cannot be used"),
        ("json(**user)", "arguments have no names"),
        ("lower()", "cannot be called with 0 arguments"),
        ("matches(event, url)", "a pattern in quotes"),
        ('matches(event, "(")', "is not a valid pattern"),
        ('matches(event, "(?=a)")', "is not a valid pattern"),
        ("a is 1", "use =="),
        ("a & b", "BitAnd cannot be used"),
        ("1 << 9", "LShift cannot be used"),
        ("~a", "Invert cannot be used"),
        ("b'x'", "bytes cannot be used"),
        ("1j", "complex cannot be used"),
        ("...", "ellipsis cannot be used"),
        ("1e999", "too large"),
        (r"'\ud800'", "surrogate"),
        ("99999999999999999999", "64 bits"),
        ("tags[::2]", "a start and an end only"),
        ("{a, b}", "constants only"),
        ("{a: 1}", "texts in quotes"),
        ("{**a}", "texts in quotes"),
        ("a" * 4001, "4000 characters"),
        ("not " * 40 + "a", "32 levels"),
        ("+".join("a" * 300), "levels"),
        (",".join("a" * 500), "400 parts"),
    ],
)
def test_what_is_refused(text: str, reason: str) -> None:
    with pytest.raises(InvalidInput, match=reason.replace("*", r"\*")):
        made(text)


def test_the_reference_page_lists_every_function() -> None:
    page = (Path(__file__).parents[3] / "docs" / "reference" / "expressions.md").read_text()
    section = page.split("## Functions")[1].split("\n## ")[0]
    first_cells = [row.split("|")[1] for row in section.splitlines() if row.startswith("| `")]
    assert set(re.findall(r"`(\w+)\(", " ".join(first_cells))) == NAMES
