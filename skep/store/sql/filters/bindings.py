"""From a fact of the field tables to SQL: a column, a number, a word, a row of another table.

A binding gets the conditions of a term, of which one must fit, and returns one condition.
Values are parameters, never text of a statement. Run by centers only.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from skep.model.filter.checked import Between, Condition, LabelIs, Match, Number, Pattern
from skep.model.jobs.generator_progress import PART_MARK
from skep.store.sql.filters.text_matching import Expression, TextMatching, Truth
from skep.store.sql.schema.jobs import job_labels
from skep.store.sql.schema.runs import run_labels, runs

#: What every engine can compare a whole number with.
_LARGEST = 2**63 - 1


@dataclass(frozen=True, slots=True)
class Scope:
    """What a binding may need to know beside its conditions."""

    text: TextMatching
    now: float
    #: Seconds after its last heartbeat for which an agent is alive.
    alive_after: float = 0.0
    #: The filter asks for dead requests only.
    only_dead: bool = False
    #: Numbers of the runs that the filter names; None = they were not looked up.
    runs: Mapping[str, int] | None = None


Binding = Callable[[Sequence[Condition], Scope], Truth]
Bindings = Mapping[str, Binding]


def text_of(column: Expression) -> Binding:
    """A column or an expression with text; NULL is absent."""
    return lambda conditions, scope: text_condition(column, conditions, scope)


def number_of(column: Expression, scale: int = 1) -> Binding:
    """A column with a number, `scale` of which are one of the filter's."""
    return lambda conditions, _scope: number_condition(column, conditions, scale)


def words_of(states: Mapping[str, Truth]) -> Binding:
    """Words that each stand for a condition."""
    return lambda conditions, _scope: sa.or_(*(states[word] for word in words_in(conditions)))


def named_in(
    key: Expression, number: sa.Column[Any], name: sa.Column[Any], *, unique: bool = False
) -> Binding:
    """A number to which another table gives a name; `unique` when one name is one number."""

    def bind(conditions: Sequence[Condition], scope: Scope) -> Truth:
        query = sa.select(number).where(text_condition(name, conditions, scope))
        if unique and len(conditions) == len(words_in(conditions)) == 1:
            return key == query.scalar_subquery()
        return key.in_(query)

    return bind


def labelled(key: sa.Column[Any], owner: sa.Column[Any]) -> Binding:
    """Labels in a table of their own: the key is one of the owners that have such a label."""
    table = owner.table

    def bind(conditions: Sequence[Condition], scope: Scope) -> Truth:
        labels = [one for one in conditions if isinstance(one, LabelIs)]
        fits = sa.or_(*(_label(table, one, scope) for one in labels))
        return key.in_(sa.select(owner).where(fits))

    return bind


def labelled_by_run(run: sa.Column[Any]) -> Binding:
    """Labels of the run that a column names."""
    of_run = labelled(runs.c.no, run_labels.c.run)

    def bind(conditions: Sequence[Condition], scope: Scope) -> Truth:
        return run.in_(sa.select(runs.c.id).where(of_run(conditions, scope)))

    return bind


def labelled_by_job(job: sa.Column[Any]) -> Binding:
    """Labels of the job that a column names, alone or with one of its generators."""
    of_job = labelled(job, job_labels.c.job)
    c = job_labels.c
    its_part = sa.func.substr(job, 1, sa.func.length(c.job) + 1) == c.job + PART_MARK

    def bind(conditions: Sequence[Condition], scope: Scope) -> Truth:
        labels = [one for one in conditions if isinstance(one, LabelIs)]
        fits = sa.or_(*(_label(job_labels, one, scope) for one in labels))
        of_part = sa.exists().where(its_part, fits).correlate(job.table)
        return sa.or_(of_job(conditions, scope), of_part)

    return bind


def _label(table: sa.FromClause, wanted: LabelIs, scope: Scope) -> Truth:
    if not wanted.name:
        return sa.true()
    named = scope.text.one_of(table.c.name, [wanted.name])
    if wanted.value is None:
        return named
    if wanted.value.match is Match.STARTS and not wanted.value.text:
        return named
    return sa.and_(named, scope.text.fits(table.c.value, wanted.value))


def text_condition(column: Expression, conditions: Sequence[Condition], scope: Scope) -> Truth:
    """Whole names go into one list, so that an index finds them together."""
    patterns = [one for one in conditions if isinstance(one, Pattern)]
    whole = [one.text for one in patterns if one.match is Match.WHOLE and not one.fold]
    found = [scope.text.one_of(column, whole)] if whole else []
    found += [
        scope.text.fits(column, one) for one in patterns if one.match is not Match.WHOLE or one.fold
    ]
    return sa.or_(*found)


def number_condition(column: Expression, conditions: Sequence[Condition], scale: int = 1) -> Truth:
    """Bounds, in the unit of the column."""
    bounds = [one for one in conditions if isinstance(one, Between)]
    return sa.or_(*(_between(column, one, scale) for one in bounds))


def words_in(conditions: Sequence[Condition]) -> list[str]:
    """The texts of conditions that are whole words."""
    return [one.text for one in conditions if isinstance(one, Pattern) and one.match is Match.WHOLE]


def _between(column: Expression, wanted: Between, scale: int) -> Truth:
    low, high = _scaled(wanted.low, scale), _scaled(wanted.high, scale)
    if low is not None and low == high:
        return column == _bound(low)
    found: list[Truth] = []
    if low is not None:
        found.append(column > _bound(low) if wanted.above_low else column >= _bound(low))
    if high is not None:
        found.append(column < _bound(high) if wanted.below_high else column <= _bound(high))
    return sa.and_(*found) if found else column.is_not(None)


def _bound(value: Number) -> Expression:
    """Of a type of its own: PostgreSQL refuses what is too large for that of the column."""
    return sa.literal(value, sa.BigInteger() if isinstance(value, int) else sa.Float(53))


def _scaled(value: Number | None, scale: int) -> Number | None:
    if value is None or scale == 1:
        return value
    return min(round(value * scale), _LARGEST)
