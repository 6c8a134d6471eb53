"""Commands call a center through the typed client alone and read its answers by attribute.

Every module of `skep/cli` and `skep/embed` is read, not run: no call by method and path, no path
of the API in a text, and in `skep/cli` no value that is subscripted with a text but those listed.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import skep
from skep.center.app import api_table

ROOT = Path(skep.__file__).parent
COMMANDS = sorted((ROOT / "cli").rglob("*.py"))
CALLERS = [*COMMANDS, *sorted((ROOT / "embed").rglob("*.py"))]
#: `/api`, `/requestqueue`, `/node`, `/version` and so on.
FIRST_PARTS = {f"/{row.path.split('/')[1]}" for row in api_table()}
#: Methods of `CenterClient` and of transports that take a path.
BY_PATH = {"call", "packed", "send", "once", "opened", "stream"}

#: (file, value): why a text may stand in its brackets, or in those of its `get`.
NO_ANSWERS = {
    ("cli/commands/develop/shell.py", "self.names"): "names that the shell offers",
    ("cli/commands/fleet/agent.py", "given"): "options of the command line",
    ("cli/commands/fleet/agent_sheet.py", "_ASIDE"): "a table of that module",
    ("cli/commands/jobs/generator_trials.py", "one"): "what the code of a generator yields",
    ("cli/commands/jobs/job_files.py", "data"): "a document of the user",
    ("cli/commands/jobs/job_files.py", "self.data"): "a document of the user",
    ("cli/commands/jobs/job_files.py", "schedule"): "a part of a document of the user",
    ("cli/commands/operate/watch.py", "row"): "a row of an event, which has no type",
    ("cli/terminal/center_options.py", "given"): "options of the command line",
}
#: What a check finds and does not count: why.
ALLOWED = {
    ("embed/demo_center.py", "send"): "asks the bundled site, which is not a center",
}


def calls_by_path(tree: ast.AST) -> Iterator[str]:
    """Names of methods that are called with a path."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and node.attr in BY_PATH:
            yield node.attr


def api_paths(tree: ast.AST) -> Iterator[str]:
    """The first part of each text that is a path of the API, f-strings included."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            first = "/".join(node.value.split("?")[0].split("/")[:2])
            if node.value.startswith("/") and first in FIRST_PARTS:
                yield first


def text_subscripts(tree: ast.AST) -> Iterator[str]:
    """Values that are read as `x["field"]` or `x.get("field")`, but for the environment."""
    for node in ast.walk(tree):
        found: ast.expr | None = None
        if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Load):
            found = node.value if _is_text(node.slice) else None
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            asks = node.func.attr == "get" and node.args and _is_text(node.args[0])
            found = node.func.value if asks else None
        if found is not None and ast.unparse(found) not in {"Literal", "os.environ"}:
            yield ast.unparse(found)


def _is_text(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str)


Check = Callable[[ast.AST], Iterator[str]]


def found_in(files: list[Path], check: Check) -> set[tuple[str, str]]:
    """(file, what)."""
    return {
        (str(file.relative_to(ROOT)), what)
        for file in files
        for what in check(ast.parse(file.read_text()))
    }


@pytest.mark.parametrize("check", [calls_by_path, api_paths])
def test_no_command_calls_a_path(check: Check) -> None:
    """Issue 11, 3: every call to a center is a method of `CenterApi`."""
    assert found_in(CALLERS, check) - set(ALLOWED) == set()


def test_no_answer_is_subscripted_with_a_text() -> None:
    """Issue 11, 3: answers are structs; other values are listed, with the reason."""
    assert found_in(COMMANDS, text_subscripts) - set(NO_ANSWERS) == set()


def test_the_lists_hold_nothing_that_is_gone() -> None:
    assert set(NO_ANSWERS) <= found_in(COMMANDS, text_subscripts)
    assert set(ALLOWED) <= found_in(CALLERS, calls_by_path)


@pytest.mark.parametrize(
    ("check", "code", "what"),
    [
        (calls_by_path, 'await client.call("GET", path, None, dict)', "call"),
        (calls_by_path, "await self._client.packed(path, message, Reply)", "packed"),
        (calls_by_path, "await transport.send(request, read)", "send"),
        (api_paths, 'PATH = "/api/v1/failures"', "/api"),
        (api_paths, 'path = f"/requestqueue/{run}"', "/requestqueue"),
        (api_paths, 'ask("/version")', "/version"),
        (api_paths, 'ask("/readyz?verbose")', "/readyz"),
        (text_subscripts, 'show(answer["items"])', "answer"),
        (text_subscripts, "f\"{line['run']}\"", "line"),
        (text_subscripts, 'x = view["run"]["state"]', "view['run']"),
        (text_subscripts, 'page.get("next", "")', "page"),
    ],
)
def test_the_checks_find_what_they_are_for(check: Check, code: str, what: str) -> None:
    assert what in set(check(ast.parse(code)))


@pytest.mark.parametrize(
    "code", ['x["a"] = 1', "x[0]", "x[name]", 'os.environ.get("A")', '"an /api/v1 path"']
)
def test_the_checks_leave_other_code_alone(code: str) -> None:
    tree = ast.parse(code)
    assert not [*calls_by_path(tree), *api_paths(tree), *text_subscripts(tree)]
