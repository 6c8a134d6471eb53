"""How many requests fit, from the running counts, where these know it. Centers only.

They are kept by run and state, so that they answer filters that ask for nothing else.
"""

from __future__ import annotations

import sqlalchemy as sa

from skep.model.filter.checked import CheckedFilter, CheckedTerm
from skep.model.states import RequestState
from skep.store.sql.engine.database import FORGOTTEN
from skep.store.sql.filters.bindings import words_in
from skep.store.sql.schema.requests import tallies
from skep.store.sql.schema.runs import runs


def kept_count(connection: sa.Connection, wanted: CheckedFilter) -> int | None:
    """None when the running counts do not know it."""
    terms = {term.facts: term for term in wanted.terms}
    by = {("run",): runs.c.id, ("job",): runs.c.job}
    if wanted.resource != "requests" or len(terms) < len(wanted.terms):
        return None
    if not terms.keys() <= {("state",), *by} or not all(map(_plain, wanted.terms)):
        return None
    if not terms.keys() & by.keys():
        return None  # it would be the sum over all runs
    query = sa.select(sa.func.sum(tallies.c.n))
    of = [
        column.in_(words_in(terms[fact].conditions)) for fact, column in by.items() if fact in terms
    ]
    within = tallies.c.run.in_(sa.select(runs.c.no).where(*of))
    states = _states(terms.get(("state",)))

    def total(offset: int) -> int:
        counted = tallies.c.state.in_([state + offset for state in states])
        return int(connection.execute(query.where(within, counted)).scalar() or 0)

    # Requests whose rows are deleted are still counted in their state.
    return total(0) - total(FORGOTTEN)


def _plain(term: CheckedTerm) -> bool:
    return not term.negated and len(words_in(term.conditions)) == len(term.conditions)


def _states(term: CheckedTerm | None) -> list[int]:
    words = None if term is None else words_in(term.conditions)
    return [int(one) for one in RequestState if words is None or one.name.lower() in words]
