"""The API's description, made from the table: whole, valid in form, in step with it. Pure."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from typing import Any, get_args

import jsonschema_rs
import msgspec
import pytest

from skep.center.api.path_names import number, run_name
from skep.center.app import api_table
from skep.center.http.authentication import Role
from skep.center.http.endpoint import Endpoint
from skep.center.http.openapi import _structs, describe
from skep.center.http.openapi_example_data import PATHS
from skep.center.http.openapi_field_comments import field_comments
from skep.center.http.openapi_field_texts import FIELD_TEXTS
from skep.center.http.openapi_operations import PATH_PARAMETERS, TAGS
from skep.errors import InvalidInput
from skep.model.failures.dead_requests import RequestFilter
from skep.model.message_bounds import AGENT_ID, EXACT
from skep.model.states import RequestState
from skep.wire.api.apps import LogAsk
from skep.wire.api.requests import StateWord, WhichRequests
from skep.wire.problem import Problem

TABLE = api_table()
#: First words of operation ids; `put`, `read`, `end` or `turn` alone say nothing.
VERBS = {
    *("add", "get", "list", "create", "set", "delete", "clear", "revoke", "change", "command"),
    *("register", "join", "send", "lease", "report", "return", "submit", "mark", "start"),
    *("read", "save", "end", "open", "revive", "restart", "stop", "retry", "cancel", "clean"),
    *("run", "compare", "dispatch", "preview", "explain", "enable", "disable", "log", "watch"),
    *("acknowledge", "mute", "resolve", "ignore", "reopen", "export", "rotate"),
}
PAGE: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(describe(TABLE)))


def operation(row: Endpoint) -> dict[str, Any]:
    found: dict[str, Any] = PAGE["paths"][row.path][row.method.lower()]
    return found


def refs(part: Any) -> Iterator[str]:
    if isinstance(part, dict):
        if isinstance(part.get("$ref"), str):
            yield part["$ref"]
        part = list(part.values())
    if isinstance(part, list):
        for item in part:
            yield from refs(item)


def test_every_row_is_described_and_nothing_else() -> None:
    """C8, fault 73."""
    described = {(verb, path) for path, verbs in PAGE["paths"].items() for verb in verbs}
    assert described == {(row.method.lower(), row.path) for row in TABLE}
    assert PAGE["openapi"] == "3.1.0"


def test_operation_ids_make_good_method_names() -> None:
    """U1: unique, snake_case, a verb and its object; one for each row and no other."""
    names = Counter(operation(row)["operationId"] for row in TABLE)
    assert [name for name, count in names.items() if count > 1] == []
    for name in names:
        assert re.fullmatch(r"[a-z]+(_[a-z]+)+", name), name
        assert name.split("_")[0] in VERBS, name


def test_every_tag_and_parameter_is_described() -> None:
    """U1."""
    assert [tag["name"] for tag in PAGE["tags"]] == list(TAGS)
    assert set(TAGS) == {row.tag for row in TABLE}
    named = {name for row in TABLE for name in re.findall(r"{(\w+)}", row.path)}
    assert set(PATH_PARAMETERS) == named
    for row in TABLE:
        for one in operation(row)["parameters"]:
            assert one.get("description"), (row.path, one)


def test_every_field_is_described() -> None:
    """U1: of every object and array, of answers, bodies and queries; 0 without."""
    silent = []
    for name, schema in PAGE["components"]["schemas"].items():
        fields = [*schema.get("properties", {}).items(), *enumerate(schema.get("prefixItems", []))]
        silent += [(name, field) for field, part in fields if not part.get("description")]
        assert schema.get("description"), name
    assert silent == []


def test_the_table_of_descriptions_has_no_entry_without_a_field() -> None:
    """U1: a field that is renamed, or gets a comment of its own, takes its entry with it."""
    kinds = [kind for row in TABLE for kind in (row.takes, row.gives, row.asks) if kind]
    used = set()
    for found in _structs([*kinds, Problem]):
        own = field_comments(found.cls)
        for field in found.fields:
            full = f"{found.cls.__name__}.{field.name}"
            if field.name not in own:
                used.add(full if full in FIELD_TEXTS else field.name)
    assert set(FIELD_TEXTS) - used == set()


def validator(schema: dict[str, Any]) -> jsonschema_rs.Draft202012Validator:
    return jsonschema_rs.Draft202012Validator({"components": PAGE["components"], **schema})


@pytest.mark.parametrize("row", TABLE, ids=lambda row: f"{row.method} {row.path}")
def test_every_operation_has_examples_that_fit(row: Endpoint) -> None:
    """U1: each parameter, the body and each answer, errors too; 0 without."""
    found = operation(row)
    contents = [*(answer["content"] for answer in found["responses"].values())]
    if row.takes is not None:
        body = found["requestBody"]["content"]
        contents.append(body)
        msgspec.convert(body["application/json"]["example"], row.takes)
    parts = [*found["parameters"], *(part for one in contents for part in one.values())]
    for part in parts:
        validator(part["schema"]).validate(part["example"])
    if row.gives is not None:
        answer = found["responses"][str(row.status)]["content"]["application/json"]
        msgspec.convert(answer["example"], row.gives)


def test_every_route_has_the_examples_that_it_needs_and_no_others() -> None:
    """U1: a body, and an answer of bytes, have an example; query examples name parameters."""
    for row in TABLE:
        route = row.route
        assert (route.example is None) == (route.takes is None), route.id
        assert (route.answer_example is None) == (route.gives is not None), route.id
        asked = set() if route.asks is None else set(route.asks.__struct_encode_fields__)  # type: ignore[attr-defined]  # a struct
        assert set(route.query_example) <= asked, route.id
    assert {*PATHS, "verb"} == set(PATH_PARAMETERS)


def test_exact_rules_reach_the_description_and_no_other_key_does() -> None:
    """S13: the schema says what the center takes; the marker itself is not part of it."""
    schemas = PAGE["components"]["schemas"]
    agent = schemas["LeaseAsk"]["properties"]["agent"]
    assert (agent["minLength"], agent["maxLength"], agent["pattern"]) == (1, 64, AGENT_ID)
    assert [part for part in parts(PAGE) if EXACT in part] == []
    assert schemas["Join"]["properties"]["digest"]["pattern"].startswith("^([A-Za-z0-9+/]{4})*")
    acts = PAGE["paths"]["/api/v1/failures/retry"]["post"]["requestBody"]["content"]
    fits = validator(acts["application/json"]["schema"]).is_valid
    assert [fits({"filter": {}}), fits({"filter": {"run": ""}})] == [False, False]
    assert fits({"filter": {}, "all": True})
    assert fits({"filter": {"status": 500}})


def test_fields_are_described_by_the_comments_above_them() -> None:
    """U1: one text for both, of objects, of arrays, of inherited and of renamed fields."""
    schemas = PAGE["components"]["schemas"]
    group = schemas["FailureGroup"]["properties"]
    assert group["text"]["description"] == "The common part of the details."
    found = [part for part in schemas["Outcome"]["prefixItems"] if "description" in part]
    assert found
    texts = field_comments(LogAsk)
    log = PAGE["paths"]["/api/v1/runs/{run}/instances/{no}/log"]["get"]["parameters"]
    assert next(one for one in log if one["name"] == "from")["description"] == texts["start"]
    assert field_comments(WhichRequests)["text"] == field_comments(RequestFilter)["text"] != ""


def test_comments_of_a_class_without_source_are_none() -> None:
    made = type("Made", (), {"__module__": "no.such.module"})
    assert (field_comments(made), field_comments(int)) == ({}, {})


def parts(part: Any) -> Iterator[dict[str, Any]]:
    if isinstance(part, dict):
        yield part
        part = list(part.values())
    if isinstance(part, list):
        for item in part:
            yield from parts(item)


def test_no_schema_is_a_bare_false() -> None:
    """U1: openapi-python-client fails on `items: false`; tuples keep their exact length."""
    assert [part for part in parts(PAGE) if part.get("items") is False] == []
    beats = PAGE["components"]["schemas"]["Beats"]["properties"]["items"]["items"]
    assert (beats["minItems"], beats["maxItems"], len(beats["prefixItems"])) == (2, 2, 2)


def test_every_reference_leads_somewhere() -> None:
    known = {f"#/components/schemas/{name}" for name in PAGE["components"]["schemas"]}
    assert set(refs(PAGE)) <= known


@pytest.mark.parametrize("row", TABLE, ids=lambda row: f"{row.method} {row.path}")
def test_a_row_says_what_it_needs_and_how_it_fails(row: Endpoint) -> None:
    """Faults 48, 73: the token, the role, the parameters, every error as a problem."""
    found = operation(row)
    answers = found["responses"]
    assert str(row.status) in answers
    assert found["summary"] == row.summary
    if row.role is Role.PUBLIC:
        assert "security" not in found
    else:
        assert found["security"] == [{"token": []}]
        assert f"`{row.role}`" in found["description"]
        assert {"401", "403", "503"} <= set(answers)
    assert ("requestBody" in found) == (row.takes is not None)
    if row.takes is not None:
        assert {"400", "413"} <= set(answers)
    in_path = {one["name"] for one in found["parameters"] if one["in"] == "path"}
    assert in_path == set(re.findall(r"{(\w+)}", row.path))
    for status, answer in answers.items():
        if int(status) >= 400 and int(status) not in row.others:
            assert list(answer["content"]) == ["application/problem+json"]


def test_the_door_says_that_sending_twice_is_safe() -> None:
    """Fault 3."""
    for path in ("/api/v1/runs/{run}/requests", "/requestqueue/{identity}"):
        assert "Idempotency-Key" in PAGE["paths"][path]["post"]["description"]


def test_states_of_requests_are_words_and_all_of_them() -> None:
    assert list(get_args(StateWord)) == [state.name.lower() for state in RequestState]


@pytest.mark.parametrize("name", ["a", "quotes-2026.11", "A_b", "x" * 64, "1"])
def test_names_of_runs(name: str) -> None:
    assert run_name(name) == name
    schema = PAGE["paths"]["/api/v1/runs/{run}"]["get"]["parameters"][0]["schema"]
    assert re.search(schema["pattern"], name)


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "a\n", "a\x00", "\u00e9", "x" * 65, "-a"])
def test_names_that_no_run_has(name: str) -> None:
    """Fault 51."""
    with pytest.raises(InvalidInput, match="is not a valid run name"):
        run_name(name)


def test_numbers_in_paths() -> None:
    assert number("0") == 0
    assert number("9" * 18) == 10**18 - 1
    for text in ("", "-1", "+1", "1.0", "1e3", "\u0661", "9" * 19, " 1", "0x1"):
        with pytest.raises(InvalidInput):
            number(text)
