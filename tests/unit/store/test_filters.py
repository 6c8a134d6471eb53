"""Filters as SQL: parameters only, what is left to memory, and which index is named."""

from __future__ import annotations

import pytest
import sqlalchemy as sa
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy.dialects import mysql, postgresql, sqlite

from skep.model.filter.fields import FieldTable
from skep.model.filter.scoped import LABEL
from skep.model.filter.syntax import quoted
from skep.store.sql.engine.text_matching import either_case, next_text
from skep.store.sql.filters.compile import CompiledFilter, compile_filter
from skep.store.sql.filters.indexes import COLUMNS, INDEXES, FilterIndex
from skep.store.sql.filters.resources import BINDINGS
from skep.store.sql.schema import metadata
from skep.wire.filter.check import read_filter
from skep.wire.filter.tables import TABLES

NOW = 1_700_000_000.0
DIALECTS: dict[str, sa.Dialect] = {
    "sqlite": sqlite.dialect(),
    "postgresql": postgresql.dialect(),  # type: ignore[no-untyped-call]
    "mysql": mysql.dialect(),
}
#: Facts that are in packed documents: they are evaluated in memory.
IN_MEMORY: dict[str, set[str]] = {
    "requests": set(),
    "runs": set(),
    "jobs": {"kind", "downloader", "customer", "note"},
    "agents": {"label", "name", "group", "kind", "version", "address", "os"},
    "dispatches": set(),
    "fires": set(),
    "audit": set(),
}
#: Tables whose names are not those of their lists.
NAMED = {"dispatches": "dispatch_log"}


def compiled(text: str, resource: str = "requests", engine: str = "sqlite") -> CompiledFilter:
    return compile_filter(read_filter(text, TABLES[resource], NOW), engine, 30.0)


@pytest.mark.parametrize("resource", IN_MEMORY)
def test_every_field_has_a_column_or_is_known_to_have_none(resource: str) -> None:
    facts = {field.fact for field in TABLES[resource].fields}
    assert facts - BINDINGS[resource].keys() == IN_MEMORY[resource]
    # Every list can be limited to a scope, also one without a field for labels.
    assert BINDINGS[resource].keys() - {LABEL} <= facts
    assert COLUMNS[resource].keys() <= facts
    assert set(COLUMNS[resource].values()) <= {
        c.name for c in metadata.tables[NAMED.get(resource, resource)].columns
    }


def test_other_lists_are_decided_in_memory() -> None:
    others = {name for name, bound in BINDINGS.items() if bound.keys() <= {LABEL}}
    assert others == BINDINGS.keys() - IN_MEMORY.keys()
    # What has no labels is never shown to a caller with a scope.
    assert {name for name in others if not BINDINGS[name]} == {
        *("alerts", "hosts", "tokens", "failure-groups", "operations", "users", "sessions"),
    }


@pytest.mark.parametrize("engine", DIALECTS)
@pytest.mark.parametrize("resource", IN_MEMORY)
def test_what_people_write_never_becomes_sql(resource: str, engine: str) -> None:
    """A value is a parameter, whatever it says."""
    evil = "x'\";--DROPTABLE"
    table = TABLES[resource]
    texts = [field.name for field in table.fields if field.type in {"name", "text", "host"}]
    pieces = [f"{name}:{mark}" for name in texts for mark in (quoted(evil), f"*{quoted(evil)}*")]
    found = compiled(" ".join([*pieces, quoted(evil)]), resource, engine)
    statement = sa.select(sa.literal(1)).where(*found.conditions)
    text = str(statement.compile(dialect=DIALECTS[engine]))
    assert found.conditions
    assert "droptable" not in text.lower()


def test_what_no_column_answers_is_left_to_memory() -> None:
    found = compiled("group:eu state:alive -label:x", "agents")
    assert len(found.conditions) == 1
    assert [term.facts for term in found.rest.terms] == [("group",), ("label",)]
    assert found.rest.terms[1].negated
    assert found.rest.now == NOW


@pytest.mark.parametrize(
    ("text", "engine", "index", "scanned"),
    [
        ("", "sqlite", "", ()),
        ("run:a", "sqlite", "requests_once", ()),
        ("run:a,b", "mysql", "requests_once", ()),
        ("run:a*", "sqlite", "", ("run",)),
        ("-run:a", "sqlite", "", ("run",)),
        ("run:a uri:x", "sqlite", "requests_once", ("uri",)),
        ("run:a run:b", "sqlite", "requests_once", ("run",)),
        ("id:1..9 text", "sqlite", "PRIMARY", ("uri", "detail")),
        ("state:dead", "postgresql", "requests_dead_ids", ()),
        ("state:dead", "mysql", "requests_waiting", ()),
        ("state:dead run:a group:1@h", "sqlite", "requests_dead", ()),
        ("state:dead run:a status:404 host:h", "sqlite", "requests_dead", ()),
        ("state:dead run:a host:h", "sqlite", "requests_dead_hosts", ("run",)),
        ("run:a error:timeout", "sqlite", "requests_failed", ("run",)),
        ("error:timeout", "mysql", "", ("error",)),
        ("error:timeout", "postgresql", "requests_failed", ()),
        ("state:done", "sqlite", "", ("state",)),
        ("state:done", "mysql", "requests_waiting", ()),
        ("state:leased", "mysql", "requests_waiting", ("state",)),
        ("state:queued,leased", "mysql", "requests_waiting", ()),
        ("state:waiting,dead", "sqlite", "", ("state",)),
        ("state:delayed host:a*", "sqlite", "requests_parked", ()),
        ("state:delayed host:a*", "postgresql", "requests_parked", ("host",)),
        ("host:a", "sqlite", "", ("host",)),
        ("job:a", "sqlite", "", ("job",)),
    ],
)
def test_the_index_of_a_filter(
    text: str, engine: str, index: str, scanned: tuple[str, ...]
) -> None:
    found = compiled(text, engine=engine).serving
    assert (found.index, found.scanned) == (index, scanned)
    assert found.exact == (bool(index) and not scanned)


@pytest.mark.parametrize(
    ("text", "resource", "direct"),
    [
        ("id:5", "requests", True),
        ("id:>5", "requests", True),
        ("id:5,7,9", "requests", True),
        ("id:1..3,5..9", "requests", False),
        ("run:a", "requests", False),
        ("state:waiting", "requests", False),
        ("state:waiting run:a priority:5", "requests", True),
        ("state:waiting run:a priority:>3", "requests", False),
        ("state:waiting run:a,b priority:5", "requests", False),
        ("state:waiting run:a priority:5 text", "requests", False),
        ("id:x", "runs", True),
        ("state:failed", "runs", True),
        ("job:a since:2h", "runs", True),
        ("label:a", "runs", False),
        ("state:dead", "requests", True),
        ("state:dead host:a", "requests", True),
        ("group:1@a", "requests", True),
        ("group:1", "requests", False),
        ("error:timeout", "requests", True),
        ("state:enabled name:a*", "jobs", True),
        ("state:deleted", "jobs", False),
        ("name:a*", "jobs", True),
        ("id:a group:b", "agents", False),
    ],
)
def test_a_page_is_one_query_when_an_index_has_its_order(
    text: str, resource: str, direct: bool
) -> None:
    assert compiled(text, resource).serving.direct is direct


BETTER = (
    FilterIndex("by_run", ("run", "id")),
    FilterIndex("by_state", ("state", "id")),
    FilterIndex("by_host", ("host", "id")),
    FilterIndex("by_fault", ("fault", "id"), frozenset({"dead"})),
    FilterIndex("by_time", ("created_at",)),
)


@pytest.mark.parametrize(
    ("text", "index", "direct"),
    [
        ("run:a", "by_run", True),
        ("run:a uri:x", "by_run", False),
        ("state:done", "by_state", True),
        ("host:a", "by_host", True),
        ("host:a*", "by_host", False),
        ("group:1", "by_fault", True),
        ("state:dead group:1", "by_fault", True),
        ("error:timeout", "", False),
        ("status:404 state:dead", "by_fault", False),
        ("since:2h until:1h", "by_time", False),
    ],
)
def test_an_index_that_ends_with_the_key_makes_pages_direct(
    monkeypatch: pytest.MonkeyPatch, text: str, index: str, direct: bool
) -> None:
    """An index is added with one line."""
    worse = FilterIndex("without_order", ("run", "fingerprint"))
    monkeypatch.setitem(INDEXES, "requests", (worse, *BETTER, worse))
    found = compiled(text).serving
    assert (found.index, found.direct) == (index, direct)
    if text == "since:2h until:1h":
        assert found.exact


@pytest.mark.parametrize("table", [TABLES[name] for name in IN_MEMORY], ids=list(IN_MEMORY))
def test_fields_that_promise_an_index_have_one(table: FieldTable) -> None:
    """On every engine, for every value; the reference page tells people."""
    for field in table.fields:
        examples = field.words or field.examples[:1]
        served = all(
            compiled(f"{field.name}:{example}", table.resource, engine).serving.index
            for engine in DIALECTS
            for example in examples
        )
        assert served == field.indexed, field.name


TEXTS = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=5)


@given(TEXTS, TEXTS)
def test_the_text_after_a_prefix_is_after_all_that_begin_with_it(text: str, more: str) -> None:
    after = next_text(text)
    if after is None:
        assert set(text) == {"\U0010ffff"}
        return
    assert text <= text + more < after
    # Nothing fits between: what is before it and after the prefix begins with the prefix.
    assert not text < more < after or more.startswith(text.rstrip("\U0010ffff"))


def test_a_regular_expression_has_both_cases_of_ascii_letters_only() -> None:
    assert either_case("a.Z1ä") == "[aA]\\.[zZ]1ä"


@pytest.mark.parametrize(
    ("text", "resource", "branches"),
    [
        ("state:dead,expired", "requests", 2),
        ("state:dead,waiting", "requests", 0),
        ("state:open", "runs", 3),
        ("error:timeout,network", "requests", 2),
        ("error:timeout,network uri:x", "requests", 0),
        ("-state:dead,expired", "requests", 0),
        ("state:dead", "requests", 0),
    ],
)
def test_several_values_of_one_ordered_index_are_merged(
    text: str, resource: str, branches: int
) -> None:
    assert len(compiled(text, resource).branches) == branches
