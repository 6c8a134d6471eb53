"""Pipeline documents: every problem with its path, short forms, and the same in Python."""

from __future__ import annotations

from copy import deepcopy
from pathlib import Path
from typing import Any

import msgspec
import pytest

from skep.errors import InvalidPipeline
from skep.model.jobs.documents import read_documents
from skep.model.pipelines.document import InputPart, OperationPart, OutputPart, Pipeline
from skep.pipelines.definitions.document_check import KnownNames, PipelineChecker
from skep.testing.clock import ManualClock

EXAMPLES = sorted((Path(__file__).parents[3] / "examples" / "pipelines").glob("*.yaml"))
GOOD: dict[str, Any] = {
    "name": "clicks",
    "inputs": "events",
    "operations": [{"outputs": [{"target": "orders"}]}],
}


def checker(known: KnownNames | None = None) -> PipelineChecker:
    return PipelineChecker(ManualClock(), known)


def problems(document: Any, known: KnownNames | None = None) -> list[str]:
    return [str(problem) for problem in checker(known).judge(document)[1]]


def changed(path: str, value: Any) -> dict[str, Any]:
    """A good document with one value set; a path such as `operations.0.when`."""
    document = deepcopy(GOOD)
    *above, last = path.split(".")
    place: Any = document
    for name in above:
        place = place[int(name)] if isinstance(place, list) else place.setdefault(name, {})
    place[last] = value
    return document


def test_the_shortest_document() -> None:
    made = checker().check(GOOD)
    assert made == Pipeline(
        name="clicks",
        inputs=(InputPart("events"),),
        operations=(OperationPart((OutputPart("orders"),)),),
    )


def test_the_same_in_python() -> None:
    """S9: a pipeline that is built in Python passes the same check."""
    made = checker().check(GOOD)
    assert checker().check(made) == made
    wrong = msgspec.structs.replace(made, filter="a b")
    assert [p.partition(":")[0] for p in problems(wrong)] == ["filter"]


def test_short_forms() -> None:
    several = changed("inputs", ["a", {"name": "b", "parse": "logfmt", "start": "latest"}])
    made = checker().check(several)
    assert [one.name for one in made.inputs] == ["a", "b"]
    assert made.inputs[1].parse is not None
    assert made.inputs[1].parse.kind == "logfmt"
    assert checker().check(changed("parse", "msgpack")).parse.kind == "msgpack"


@pytest.mark.parametrize("file", EXAMPLES, ids=lambda file: file.stem)
def test_the_examples_are_valid_and_survive_a_round_trip(file: Path) -> None:
    [document] = read_documents(file.read_text(), file.name)
    made = checker().check(document)
    assert made.tests
    assert checker().check(msgspec.json.decode(msgspec.json.encode(made))) == made


@pytest.mark.parametrize(
    ("path", "value", "problem"),
    [
        ("name", "no spaces", "name: must be 1 to 46 letters"),
        ("inputs", [], "inputs: is empty"),
        ("inputs", 5, "inputs: "),
        ("inputs", ["a", "a"], "inputs[1].name: 'a' is used twice"),
        ("operations", [], "operations: is empty"),
        ("operations.0.outputs", [], "operations[0].outputs: is empty"),
        ("operations.0.when", "lambda: 1", "operations[0].when: lambda cannot be used"),
        ("operations.0.outputs.0.when", "x y", "operations[0].outputs[0].when: not an"),
        ("operations.0.outputs.0.target", "", "operations[0].outputs[0].target: must be"),
        ("operations.0.outputs.0.key", "=", "operations[0].outputs[0].key: not an expression"),
        ("operations.0.outputs.0.values", {"a": "{{ x"}, "outputs[0].values.a: a part of the"),
        ("operations.0.outputs.0.values", {"a": ["=open()"]}, "values.a: there is no function"),
        (
            "operations.0.outputs.0.fields",
            [{"name": "a", "value": "=b.c()"}],
            "operations[0].outputs[0].fields[0].value: values have no methods",
        ),
        ("operations.0.outputs.0.fields", [{"name": "a"}], "fields[0].value: is missing"),
        ("operations.0.outputs.0.fields", [{"name": "a", "value": 1, "ttl": -1}], "ttl: must be"),
        ("filter", "f'{x}'", "filter: f-strings"),
        ("filtre", "a", "filtre: is not a known field; did you mean 'filter'"),
        ("parse", "xml", "parse.kind: must be"),
        ("parse", "csv", "parse.columns: is missing; csv needs it"),
        ("parse", {"kind": "json", "columns": ["a"]}, "parse.columns: is not used by json"),
        ("parse", {"kind": "regex", "pattern": "("}, "parse.pattern: '(' is not a valid pattern"),
        ("parse", {"kind": "regex", "pattern": "a"}, "parse.pattern: has no named group"),
        ("parse", {"common": {"a": "=)"}}, "parse.common.a: not an expression"),
        ("user_id", "17", "user_id: is compared with `trace.dmp_user_id`; add `trace`"),
        ("trace", {"id": "a b"}, "trace.id: not an expression"),
        ("trace", {"lookups": [{"store": "s"}]}, "trace.lookups[0].key: is missing"),
        (
            "trace",
            {"lookups": [{"store": "s", "key": "a"}, {"store": "s", "key": "b"}]},
            "trace.lookups: two look-ups have one name",
        ),
        (
            "trace",
            {"write_back": {"store": "s", "key": "k", "found_by": ["x"]}},
            "trace.write_back.found_by[0]: there is no look-up 'x'",
        ),
        ("extras", [{"field": "a"}], "extras[0]: needs exactly one of server, method and func"),
        (
            "extras",
            [{"field": "a", "server": "s", "method": "m"}],
            "extras[0]: needs exactly one of server, method and func; it has server and method",
        ),
        ("extras", [{"field": "trace", "server": "s"}], "extras[0].field: 'trace' is filled"),
        ("extras", [{"field": "a", "func": "../x.py"}], "extras[0].func: must be"),
        ("retry", {"limit": -1}, "retry.limit: must be"),
        ("batch", {"size": 0}, "batch.size: must be"),
        ("on_no_output", "maybe", "on_no_output: must be"),
        ("nodes", 0, "nodes: must be"),
        ("nodes", "some", "nodes: must be"),
        ("tests", [{"name": "t", "cases": [{}]}], "tests[0].cases[0]: needs exactly one of"),
        (
            "tests",
            [{"name": "t", "cases": [{"raw": "x", "outputs": [{"target": "x"}]}]}],
            "tests[0].cases[0].outputs[0].target: there is no output 'x'",
        ),
        ("note", "redis://ada:secret@host/0", "note: contains a URL with a password"),
    ],
)
def test_a_problem_and_its_path(path: str, value: Any, problem: str) -> None:
    """S9: each error with its path."""
    [found] = problems(changed(path, value))
    assert problem in found


def test_all_problems_are_reported_at_once() -> None:
    """S9: all errors of a document, not the first."""
    document = {
        "name": "a b",
        "filter": "x y",
        "extras": [{"field": "a"}, {"field": "b", "server": "s", "when": ")"}],
        "operations": [{"when": "(", "outputs": [{"target": "t", "key": "={"}, {"target": 5}]}],
        "wrong": 1,
    }
    found = [problem.partition(":")[0] for problem in problems(document)]
    assert sorted(found) == [
        "extras[0]",
        "extras[1].when",
        "filter",
        "inputs",
        "name",
        "operations[0].outputs[0].key",
        "operations[0].outputs[1].target",
        "operations[0].when",
        "wrong",
    ]
    with pytest.raises(InvalidPipeline) as refused:
        checker().check(document)
    assert len(refused.value.detail.splitlines()) == len(found)


@pytest.mark.parametrize("document", [None, [], "text", 5])
def test_something_else_than_a_document(document: Any) -> None:
    assert len(problems(document)) == 1


def test_a_document_that_contains_itself() -> None:
    document = deepcopy(GOOD)
    document["labels"] = document
    assert "nested deeper" in problems(document)[0]


def test_names_are_compared_with_what_a_center_knows() -> None:
    """S7, S9: inputs, stores, servers, methods and targets must exist."""
    document = {
        **GOOD,
        "trace": {
            "lookups": [{"store": "users", "key": "a"}],
            "record": {"store": "sources"},
            "write_back": {"store": "users2", "key": "b"},
        },
        "extras": [{"field": "a", "server": "geo"}, {"field": "b", "method": "hash"}],
    }
    assert [one.partition(":")[0] for one in problems(document, KnownNames())] == [
        "inputs[0].name",
        "trace.lookups[0].store",
        "trace.record.store",
        "trace.write_back.store",
        "extras[0].server",
        "extras[1].method",
        "operations[0].outputs[0].target",
    ]
    known = KnownNames(
        inputs=frozenset({"events"}),
        stores=frozenset({"users", "users2", "sources"}),
        servers=frozenset({"geo"}),
        methods=frozenset({"hash"}),
        targets=frozenset({"orders"}),
    )
    assert problems(document, known) == []
