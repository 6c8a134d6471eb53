"""Compiles a checked filter to conditions on the tables of its resource. Run by centers only.

A term that no column answers is not dropped: it comes back in `rest`, and the caller evaluates
it on the rows that it reads (`skep.model.filter.matching`). What is unknown in SQL (NULL) does
not fit, so that a negated term fits rows without a value, as in memory.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
import sqlalchemy as sa

from skep.model.filter.checked import CheckedFilter, CheckedTerm
from skep.store.sql.filters.bindings import Bindings, Scope
from skep.store.sql.filters.indexes import Serving, dead_only, serving, split
from skep.store.sql.filters.resources import BINDINGS
from skep.store.sql.filters.text_matching import Truth, text_matching


class CompiledFilter(msgspec.Struct, frozen=True):
    """Conditions for `Select.where`, what they leave to memory, and how rows are found."""

    conditions: tuple[Truth, ...]
    #: Those of them that the index answers.
    answered: tuple[Truth, ...]
    rest: CheckedFilter
    serving: Serving
    #: Bounds of the key, which hold for every row that fits.
    span: tuple[Truth, ...] = ()
    #: One filter for each value of a term, when each of them is one ordered search.
    branches: tuple[CompiledFilter, ...] = ()

    @property
    def narrowing(self) -> tuple[Truth, ...]:
        """What the index answers, when it also has the order of pages."""
        return self.answered if self.serving.ordered else ()

    @property
    def is_empty(self) -> bool:
        """Every row fits."""
        return not self.conditions and not self.rest.terms and not self.span


def compile_filter(
    wanted: CheckedFilter,
    engine: str,
    alive_after: float = 0.0,
    runs: Mapping[str, int] | None = None,
    span: tuple[Truth, ...] = (),
) -> CompiledFilter:
    """For the engine of this name. `alive_after` is needed for the states of agents only; `runs`
    are the numbers of the runs that a filter of requests names (`run_numbers`), and `span` is
    known about the keys of the rows that fit (`spans.py`).

    Raises KeyError for a resource without tables of its own.
    """
    branches = tuple(
        compile_filter(one, engine, alive_after, runs, span) for one in split(wanted, engine)
    )
    bindings = BINDINGS[wanted.resource]
    scope = Scope(text_matching(engine), wanted.now, alive_after, dead_only(wanted), runs)
    found = {
        term: _condition(term, bindings, scope)
        for term in wanted.terms
        if set(term.facts) <= bindings.keys()
    }
    by = serving(wanted, engine)
    return CompiledFilter(
        tuple(found.values()),
        tuple(found[term] for term in by.answered),
        msgspec.structs.replace(wanted, terms=tuple(t for t in wanted.terms if t not in found)),
        by,
        span,
        branches,
    )


def _condition(term: CheckedTerm, bindings: Bindings, scope: Scope) -> Truth:
    found = sa.or_(*(bindings[fact](term.conditions, scope) for fact in term.facts))
    return found.is_not(sa.true()) if term.negated else found
