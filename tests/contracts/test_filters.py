"""The filter language as it is promised: its page, its words, and the example of the pages."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from skep.model.failures.failure_class import FailureClass
from skep.model.filter.fields import OPERATORS, FieldTable, FieldType
from skep.model.states import RequestState, RunState
from skep.wire.filter.check import read_filter
from skep.wire.filter.tables import REQUESTS, RUNS, TABLES
from tools.filter_reference import EXAMPLE

PAGE = (Path(__file__).parents[2] / "docs" / "reference" / "filters.md").read_text()
#: Fields that lists must be searchable by, whatever else they have.
PROMISED = {
    "requests": {"run", "job", "state", "host", "error", "fingerprint", "since", "until"},
    "runs": {"job", "state", "label", "since", "until"},
    "jobs": {"name", "state", "label"},
    "agents": {"state", "group", "label"},
    "audit": {"user", "object", "since", "until"},
}


@pytest.mark.parametrize("table", TABLES.values(), ids=TABLES)
def test_every_field_is_on_the_page(table: FieldTable) -> None:
    section = PAGE.split(f"\n## {table.resource}\n")[1].split("\n## ")[0]
    rows = re.findall(r"^\| (`[^|]*`) \| (\w+) \|", section, re.MULTILINE)
    listed = {name.strip("`"): kind for names, kind in rows for name in names.split(", ")}
    known = {name: one.type for one in table.fields for name in (one.name, *one.aliases)}
    assert listed == known


def test_every_type_is_on_the_page() -> None:
    section = PAGE.split("\n## Types\n")[1].split("\n## ")[0]
    assert re.findall(r"^\| (\w+) \|", section, re.MULTILINE)[1:] == list(FieldType)
    assert OPERATORS.keys() == set(FieldType)


@pytest.mark.parametrize("resource", PROMISED)
def test_promised_fields_exist(resource: str) -> None:
    assert [name for name in PROMISED[resource] if TABLES[resource].find(name) is None] == []


@pytest.mark.parametrize(
    ("table", "name", "words"),
    [
        (REQUESTS, "state", {state.name.lower() for state in RequestState}),
        (RUNS, "state", set(RunState)),
        (REQUESTS, "error", set(FailureClass)),
    ],
    ids=["requests", "runs", "failures"],
)
def test_words_are_those_of_the_model(table: FieldTable, name: str, words: set[str]) -> None:
    field = table.find(name)
    assert field is not None
    assert set(field.words) == words


def test_the_example_of_the_page_is_good() -> None:
    assert EXAMPLE in PAGE
    assert len(read_filter(EXAMPLE, REQUESTS, 1_700_000_000.0).terms) == 8
