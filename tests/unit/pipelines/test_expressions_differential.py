"""Random expressions give what plain Python gives, value for value and error for error."""

from __future__ import annotations

import warnings
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from skep.pipelines.expressions.expression import Expression, ExpressionFailed
from skep.testing.clock import ManualClock

FIELDS = ("a", "b", "c", "d")
_leaves = st.one_of(
    st.sampled_from(FIELDS),
    st.integers(-50, 50).map(str),
    st.floats(-10, 10, allow_nan=False).map(repr),
    st.sampled_from(['"x"', '"xy"', '""', "None", "True", "False", "[1, 2]", '["x"]']),
)


def _larger(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    pairs = st.tuples(inner, inner)
    signs = ["==", "!=", "<", "<=", ">", ">=", "+", "-", "/", "//", "and", "or", "in"]
    return st.one_of(
        st.tuples(inner, st.sampled_from(signs), inner).map(lambda p: f"({p[0]} {p[1]} {p[2]})"),
        inner.map(lambda one: f"(not {one})"),
        inner.map(lambda one: f"(-{one})"),
        inner.map(lambda one: f"({one} is None)"),
        st.tuples(inner, inner, inner).map(lambda p: f"({p[0]} if {p[1]} else {p[2]})"),
        st.tuples(inner, inner, inner).map(lambda p: f"({p[0]} < {p[1]} <= {p[2]})"),
        pairs.map(lambda p: f"[{p[0]}, {p[1]}]"),
    )


def _sums(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    """`%` formats and `*` repeats in Python, and here they do not: numbers only."""
    return st.tuples(inner, st.sampled_from(["+", "-", "*", "/", "//", "%"]), inner).map(
        lambda p: f"({p[0]} {p[1]} {p[2]})"
    )


_numbers = st.one_of(st.integers(-50, 50).map(str), st.sampled_from(["n", "i"]))
_powers = st.tuples(_numbers, st.integers(-3, 3)).map(lambda p: f"({p[0]} ** {p[1]})")
_repeated = st.tuples(st.text("xy", max_size=3), st.integers(-1, 4)).map(
    lambda p: f'("{p[0]}" * {p[1]})'
)
sums = st.recursive(st.one_of(_numbers, _powers), _sums, max_leaves=8)
texts = st.recursive(st.one_of(_leaves, sums, _repeated), _larger, max_leaves=10)
values = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-100, 100),
    st.floats(-100, 100, allow_nan=False),
    st.text("xyz", max_size=3),
    st.lists(st.integers(0, 3), max_size=3),
)
messages = st.fixed_dictionaries(
    {**dict.fromkeys(FIELDS, values), "n": st.integers(-90, 90), "i": st.floats(-9, 9)}
)


def plain(text: str, message: dict[str, Any]) -> tuple[str, Any]:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return "value", eval(text, {"__builtins__": {}}, message)
    except (TypeError, ArithmeticError, ValueError):
        return "error", None


def ours(text: str, message: dict[str, Any]) -> tuple[str, Any]:
    try:
        return "value", Expression(text, ManualClock()).value(message)
    except ExpressionFailed:
        return "error", None


@settings(max_examples=600, deadline=None)
@given(texts, messages)
def test_it_agrees_with_python(text: str, message: dict[str, Any]) -> None:
    expected, found = plain(text, message), ours(text, message)
    assert found == expected
    assert type(found[1]) is type(expected[1])


@settings(max_examples=300, deadline=None)
@given(texts, messages, st.sets(st.sampled_from(FIELDS)))
def test_an_absent_field_behaves_as_none(
    text: str, message: dict[str, Any], absent: set[str]
) -> None:
    without = {name: value for name, value in message.items() if name not in absent}
    with_none = {**message, **dict.fromkeys(absent)}
    assert ours(text, without) == ours(text, with_none)


@settings(max_examples=300, deadline=None)
@given(texts, messages)
def test_a_test_is_the_truth_of_the_value(text: str, message: dict[str, Any]) -> None:
    expression = Expression(text, ManualClock())
    kind, value = ours(text, message)
    assert expression.test(message) is (kind == "value" and bool(value))
    assert expression.errors.total() == (kind == "error")
