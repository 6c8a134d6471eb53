"""Requests enter a run by one function: nothing else reaches the rows of the store.

The lists are read from the source. Request rows are made by validation, which only the intake
calls to store something; store methods that insert them are called by request sources alone; and
`Intake.accept_from` alone asks a source to store. What each way in does is tried in
`tests/flows/requests/test_one_way_in.py`.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
STORE = "skep/store/sql"
SOURCES = "skep/jobs/request_sources.py"
INTAKE = "skep/jobs/intake.py"
#: Repeat requests that were accepted before: pages of an archive whose rows were lost, and first
#: requests of chains whose agent is gone.
REPEATS = {f"{STORE}/requests/rebuild_from_archive.py", f"{STORE}/requests/chains.py"}
#: Functions of `dialect.py`, and SQLAlchemy's own.
INSERTS = {"insert", "insert_new", "insert_many", "insert_numbered", "insert_spanning"}
#: Validate requests of a job or of a trial, and store nothing.
ONLY_CHECK = {"skep/jobs/definitions/job_check.py", "skep/jobs/generators/trial.py"}
#: Attributes of `Store` by the class that answers them.
PORTS = {
    "SqlRequests": "requests",
    "SqlCheckpoints": "checkpoints",
    "SqlGenerations": "generations",
}


def trees(folder: str = "skep", word: str = "") -> Iterator[tuple[str, ast.Module]]:
    """Product code with that word: what `skep.testing` does to a store is not a way in."""
    for path in sorted((ROOT / folder).rglob("*.py")):
        name, text = path.relative_to(ROOT).as_posix(), path.read_text()
        if word in text and not name.startswith("skep/testing/"):
            yield name, ast.parse(text)


def calls(tree: ast.AST) -> Iterator[ast.Call]:
    return (node for node in ast.walk(tree) if isinstance(node, ast.Call))


def files_with(wanted: str) -> set[str]:
    """Files that mention a call whose dotted name ends so, also when it is passed on."""
    found = set()
    for name, tree in trees(word=wanted):
        for node in ast.walk(tree):
            if isinstance(node, ast.Attribute | ast.Name) and isinstance(node.ctx, ast.Load):
                dotted = ast.unparse(node)
                if dotted == wanted or dotted.endswith(f".{wanted}"):
                    found.add(name)
    return found


def inserting_methods() -> set[str]:
    """`requests.accept` and so on: methods of the store whose work inserts request rows."""
    found = set()
    for _, tree in trees(STORE):
        for kind in (node for node in tree.body if isinstance(node, ast.ClassDef)):
            for method in kind.body:
                if any(ast.unparse(call.func) == "accept_rows" for call in calls(method)):
                    found.add(f"{PORTS[kind.name]}.{getattr(method, 'name', '')}")
    return found


def test_rows_are_inserted_in_one_place() -> None:
    """`accept_rows` is the only function of the store that inserts new requests."""
    inserting = {
        name
        for name, tree in trees(STORE)
        for call in calls(tree)
        if ast.unparse(call.func).rpartition(".")[2] in INSERTS
        and any(ast.unparse(argument) == "requests" for argument in call.args)
    }
    assert inserting == {f"{STORE}/requests/requests.py"} | REPEATS
    assert inserting_methods() == {
        "requests.accept",
        "checkpoints.checkpoint",
        "generations.take",
    }


@pytest.mark.parametrize("method", sorted(inserting_methods()))
def test_only_sources_call_what_inserts(method: str) -> None:
    assert files_with(method) == {SOURCES}


def test_only_the_intake_lets_a_source_store() -> None:
    """A source is made anywhere; `accept_from` checks, stores and counts."""
    kinds = {
        node.name
        for node in ast.parse((ROOT / SOURCES).read_text()).body
        if isinstance(node, ast.ClassDef) and "leaves_out_invalid" in ast.unparse(node)
    }
    assert len(kinds) > 1
    assert files_with("source.store") == {INTAKE}
    stored = {
        (name, ast.unparse(call))
        for name, tree in trees(word=").store(")
        for call in calls(tree)
        if isinstance(call.func, ast.Attribute)
        and call.func.attr == "store"
        and isinstance(call.func.value, ast.Call)
        and ast.unparse(call.func.value.func).rpartition(".")[2] in kinds
    }
    assert stored == set()


def test_only_validation_makes_rows() -> None:
    """And only the intake validates in order to store."""
    made = {
        name
        for name, tree in trees(word="RequestRow")
        for call in calls(tree)
        if ast.unparse(call.func).rpartition(".")[2] == "RequestRow"
    }
    assert made == {"skep/jobs/request_validation.py"}
    assert files_with("_validator.rows") | files_with("validator.rows") == {INTAKE} | ONLY_CHECK
