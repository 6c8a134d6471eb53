"""What users store, send and call stays: the code is compared with a record of it.

The record is in tests/contracts/compatibility/. When a test names something that is gone or has
changed, bring it back. When it names something new, run `python tools/compatibility.py write`
and review the new lines.
"""

from __future__ import annotations

import copy
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tools import compatibility, recorded_imports, recorded_wire

ROOT = Path(__file__).parents[2]
Record = dict[str, Any]
#: What the code has is collected once.
pytestmark = pytest.mark.xdist_group("compatibility")


@pytest.fixture(scope="module")
def now() -> dict[str, Record]:
    return {name: compatibility.collected(name) for name in compatibility.RECORDS}


@pytest.mark.parametrize("name", compatibility.RECORDS)
def test_nothing_is_gone_or_different(now: dict[str, Record], name: str) -> None:
    found = compatibility.compare(name, compatibility.recorded(name), now[name])
    assert found.broken == []


@pytest.mark.parametrize("name", compatibility.RECORDS)
def test_everything_new_is_recorded(now: dict[str, Record], name: str) -> None:
    found = compatibility.compare(name, compatibility.recorded(name), now[name])
    assert found.added == [], compatibility.REVIEW


@pytest.mark.parametrize("name", compatibility.RECORDS)
def test_a_record_is_as_the_tool_writes_it(name: str) -> None:
    text = (compatibility.FOLDER / f"{name}.json").read_text()
    assert text == compatibility.as_text(json.loads(text))


def test_there_are_no_other_records() -> None:
    files = {file.name for file in compatibility.FOLDER.iterdir()}
    assert files == {f"{name}.json" for name in compatibility.RECORDS}


@pytest.mark.parametrize("name", compatibility.recorded("messages"))
def test_recorded_messages_are_read_as_they_were_meant(name: str) -> None:
    assert recorded_wire.misread(name, compatibility.recorded("messages")[name]) == ""


def imported(paths: list[str], folder: Path = ROOT) -> dict[str, dict[str, Any]]:
    """Each path in one new process, where nothing was imported before."""
    done = subprocess.run(
        [sys.executable, str(ROOT / "tools" / "recorded_imports.py")],
        input=json.dumps(paths),
        env={**os.environ, "PYTHONPATH": str(folder)},
        capture_output=True,
        text=True,
        check=True,
    )
    found: dict[str, dict[str, Any]] = json.loads(done.stdout)
    return found


def complaints(
    known: dict[str, str], shown: set[str], results: dict[str, dict[str, Any]]
) -> list[str]:
    """What is wrong with the paths that were tried."""
    wrong = []
    for path, result in results.items():
        said, module = result["warnings"], path.partition(":")[0]
        if not result["found"]:
            wrong.append(f"{path} cannot be imported any more")
        elif path in known and result["parameters"] != known[path]:
            wrong.append(f"{path}: was {known[path]}, is {result['parameters']}")
        elif len(said) > 1:
            wrong.append(f"{path} warns {len(said)} times: {said}")
        elif said and module not in said[0]:
            wrong.append(f"{path}: the warning does not name it: {said[0]}")
        elif said and path in shown:
            wrong.append(f"{path} is retired and a page still shows it")
    return wrong


def test_recorded_paths_can_be_imported(now: dict[str, Record]) -> None:
    """A retired path works and says so once; a page never shows a retired one."""
    known, shown = compatibility.recorded("imports"), set(now["imports"])
    assert complaints(known, shown, imported(sorted({*known, *shown}))) == []


SHIM = "import warnings\n" + 'warnings.warn("skep_old.{0} has moved", DeprecationWarning, 2)\n'


def test_this_test_would_see_a_path_that_is_gone_or_warns_wrongly(tmp_path: Path) -> None:
    package = tmp_path / "skep_old"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "fine.py").write_text(SHIM.format("fine"))
    (package / "twice.py").write_text(SHIM.format("twice") * 2)
    (package / "other.py").write_text(SHIM.format("fine"))
    (package / "changed.py").write_text("def call(a, b): ...\n")
    paths = [f"skep_old.{name}" for name in ("fine", "twice", "other", "gone", "changed:call")]
    results = imported(paths, tmp_path)
    assert complaints({paths[4]: "(a)"}, set(), results) == [
        "skep_old.twice warns 2 times: ['skep_old.twice has moved', 'skep_old.twice has moved']",
        "skep_old.other: the warning does not name it: skep_old.fine has moved",
        "skep_old.gone cannot be imported any more",
        "skep_old.changed:call: was (a), is (a, b)",
    ]
    assert complaints({}, {paths[0]}, {paths[0]: results[paths[0]]}) == [
        "skep_old.fine is retired and a page still shows it"
    ]


@pytest.mark.parametrize("target", compatibility.recorded("programs")["python -m"])
def test_recorded_programs_start(target: str) -> None:
    assert recorded_imports.runs_as_a_program(target)


def test_recorded_groups_of_entry_points_are_read(now: dict[str, Record]) -> None:
    known, found = compatibility.recorded("programs"), now["programs"]
    for kind in ("entry-point groups", "scripts", "extras"):
        assert set(known[kind]) <= set(found[kind])


def _drop_route(records: dict[str, Record]) -> None:
    del records["routes"]["GET /api/v1/runs"]


def _move_port(records: dict[str, Record]) -> None:
    records["settings"]["center.port"]["default"] = "8421"


def _drop_option(records: dict[str, Record]) -> None:
    del records["commands"]["skep agent"]["options"]["--center"]


def _drop_field(records: dict[str, Record]) -> None:
    del records["messages"]["Heartbeat"]["json"]["agent"]


def _rename_metric(records: dict[str, Record]) -> None:
    records["metrics"]["skep_agents"] = records["metrics"].pop("skep_agents_up")


def _drop_shown_path(records: dict[str, Record]) -> None:
    del records["imports"]["skep.settings:load"]


@pytest.mark.parametrize(
    ("name", "change", "said"),
    [
        ("routes", _drop_route, "routes / GET /api/v1/runs is gone"),
        ("settings", _move_port, "settings / center.port / default has changed: was"),
        ("commands", _drop_option, "commands / skep agent / options / --center is gone"),
        ("messages", _drop_field, "messages / Heartbeat / json / agent is gone"),
        ("metrics", _rename_metric, "metrics / skep_agents_up is gone"),
    ],
)
def test_what_is_gone_or_different_is_named(
    now: dict[str, Record], name: str, change: Callable[[dict[str, Record]], None], said: str
) -> None:
    changed = copy.deepcopy(now)
    change(changed)
    broken = compatibility.compare(name, now[name], changed[name]).broken
    assert [line.startswith(said) for line in broken] == [True]


def test_what_is_new_is_named_with_what_to_do(now: dict[str, Record]) -> None:
    changed = copy.deepcopy(now)
    _rename_metric(changed)
    found = compatibility.compare("metrics", now["metrics"], changed["metrics"])
    assert found.added == [f"metrics / skep_agents is new: {compatibility.REVIEW}"]


def test_a_field_that_is_added_to_a_message_is_new_and_breaks_nothing(
    now: dict[str, Record],
) -> None:
    older = copy.deepcopy(now["messages"])
    del older["GivenBack"]["json"]["blocks"]
    older["GivenBack"]["msgpack"] = "80"
    found = compatibility.compare("messages", older, now["messages"])
    assert found.broken == []
    assert [line.partition(" is new")[0] for line in found.added] == [
        "messages / GivenBack / json / blocks"
    ]


def test_a_path_that_no_page_shows_any_more_stays_recorded(now: dict[str, Record]) -> None:
    changed = copy.deepcopy(now)
    _drop_shown_path(changed)
    found = compatibility.compare("imports", now["imports"], changed["imports"])
    assert (found.broken, found.added) == ([], [])
    kept = compatibility.merged("imports", now["imports"], changed["imports"])
    assert kept == now["imports"]
