"""Rows inside the scope of a caller, for queries that are not filters. Run by centers only.

The condition is that of filters (`model/filter/scoped.py`): nothing else decides what is inside.
"""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa

from skep.model.filter.scoped import scope_term
from skep.model.people.scope import Scope
from skep.store.sql.filters import bindings
from skep.store.sql.filters.text_matching import Truth, text_matching
from skep.store.sql.schema.runs import run_labels


def of_runs_inside(run: sa.Column[Any], scope: Scope, engine: str) -> list[Truth]:
    """The column has the number of a run inside; no condition for a caller without a scope."""
    return _bound(bindings.labelled(run, run_labels.c.run), scope, engine)


def of_named_runs_inside(run: sa.Column[Any], scope: Scope, engine: str) -> list[Truth]:
    """The same for a column with the name of a run."""
    return _bound(bindings.labelled_by_run(run), scope, engine)


def _bound(binding: bindings.Binding, scope: Scope, engine: str) -> list[Truth]:
    if not scope:
        return []
    return [binding(scope_term(scope).conditions, bindings.Scope(text_matching(engine), 0.0))]
