"""Gives a syntax tree its meaning: fields, operators and values of one resource.

Run by centers, and by the command line and the portal before they ask one. The result holds
typed values only; what is unknown raises InvalidFilter with the known ones and the column.
"""

from __future__ import annotations

from skep.errors import InvalidFilter
from skep.model.filter.checked import CheckedFilter, CheckedTerm, Condition
from skep.model.filter.fields import OPERATORS, Field, FieldTable, FieldType
from skep.model.filter.syntax import FilterTerm, FilterTree, FilterValue, Operator
from skep.wire.filter.parser import parse
from skep.wire.filter.problems import problem_at, unknown
from skep.wire.filter.values import conditions_of, text_pattern

#: Types whose values may hold any character, so that quotes are the way out.
_FREE = {FieldType.NAME, FieldType.TEXT, FieldType.HOST, FieldType.LABEL}


def read_filter(text: str, table: FieldTable, now: float) -> CheckedFilter:
    """Parse and check; raises InvalidFilter."""
    return check(parse(text), table, now)


def check(tree: FilterTree, table: FieldTable, now: float) -> CheckedFilter:
    """The filter with typed values, for one resource; raises InvalidFilter."""
    terms = tuple(_term(term, table, now) for term in tree.terms)
    return CheckedFilter(table.resource, terms, now)


def _term(term: FilterTerm, table: FieldTable, now: float) -> CheckedTerm:
    if not term.field:
        patterns = tuple(_text(value) for value in term.values)
        return CheckedTerm(table.text, patterns, term.negated)
    field = table.find(term.field)
    if field is None:
        column = term.column + term.negated
        what = f"a field of {table.resource}"
        raise unknown(what, term.field, table.names(), column)
    found = [one for value in term.values for one in _conditions(field, value, now)]
    return CheckedTerm((field.fact,), tuple(dict.fromkeys(found)), term.negated)


def _text(value: FilterValue) -> Condition:
    if value.operator not in OPERATORS[FieldType.TEXT]:
        raise _wrong_operator("free text", FieldType.TEXT, value)
    return text_pattern(value)


def _conditions(field: Field, value: FilterValue, now: float) -> tuple[Condition, ...]:
    if value.operator not in field.operators:
        raise _wrong_operator(f"the field `{field.name}`", field.type, value)
    try:
        found = conditions_of(field, value, now)
    except ValueError as error:
        raise problem_at(value.column - 1, len(str(value)), str(error)) from None
    if not found:
        known = (*field.words, *field.groups)
        raise unknown(f"a value of `{field.name}`", value.text, known, value.column)
    return found


def _wrong_operator(what: str, kind: FieldType, value: FilterValue) -> InvalidFilter:
    known = ", ".join(f"`{operator}`" for operator in OPERATORS[kind])
    detail = f"`{value.operator}` is not an operator of {what}; use {known}"
    if kind in _FREE and value.operator not in {Operator.ENDS, Operator.CONTAINS}:
        detail += ", or put the value in double quotes to search for these characters"
    return problem_at(value.column - 1, len(str(value)), detail)
