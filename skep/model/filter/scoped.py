"""The scope of a caller as one more condition of a filter. Pure; used by centers.

The only place that turns a scope into a condition. What a label means for a resource is its
`label` fact (`facts.py`, `store/sql/filters`): of a request, that of its run. A filter with this
condition can only find less, never more.
"""

from __future__ import annotations

import msgspec

from skep.model.filter.checked import CheckedFilter, CheckedTerm, LabelIs, Match, Pattern
from skep.model.filter.syntax import FilterTerm, FilterValue, Operator
from skep.model.people.scope import Scope, split_term

LABEL = "label"


def scope_term(scope: Scope) -> CheckedTerm:
    """One of the labels of the scope; only for a scope that limits something."""
    return CheckedTerm((LABEL,), tuple(map(_condition, scope.labels)))


def within(wanted: CheckedFilter, scope: Scope) -> CheckedFilter:
    """The filter, limited to the scope."""
    if not scope:
        return wanted
    return msgspec.structs.replace(wanted, terms=(*wanted.terms, scope_term(scope)))


def is_within(wanted: CheckedFilter, scope: Scope) -> bool:
    """Whether the filter itself asks for labels of the scope and no others, so that everything
    that it finds is inside."""
    if not scope:
        return True
    inside = set(scope_term(scope).conditions)
    return any(
        term.facts == (LABEL,) and not term.negated and inside.issuperset(term.conditions)
        for term in wanted.terms
    )


def scope_in_words(scope: Scope) -> FilterTerm:
    """The condition as a person writes it: `label:team=a,team=b`."""
    return FilterTerm(LABEL, tuple(FilterValue(Operator.EQUALS, one) for one in scope.labels))


def _condition(label: str) -> LabelIs:
    name, value = split_term(label)
    return LabelIs(name, Pattern(Match.WHOLE, value))
