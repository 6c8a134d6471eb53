"""Records what users store, send and call, and compares the code with the record.

`python tools/compatibility.py write` adds what is new to tests/contracts/compatibility/. It refuses
if something that is recorded is missing or different: restore it or, if the change is intended,
delete its line from the file first. `check` only compares.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tools import recorded_imports, recorded_interfaces, recorded_storage, recorded_wire

FOLDER = Path(__file__).parent.parent / "tests" / "contracts" / "compatibility"
REVIEW = "run `python tools/compatibility.py write` and review the new lines"

Record = dict[str, Any]

RECORDS: dict[str, Callable[[], Record]] = {
    "routes": recorded_interfaces.routes,
    "schemas": recorded_interfaces.schemas,
    "commands": recorded_interfaces.commands,
    "settings": recorded_interfaces.all_settings,
    "metrics": recorded_interfaces.metrics,
    "errors": recorded_interfaces.error_codes,
    "revisions": recorded_storage.revisions,
    "enums": recorded_storage.enums,
    "names": recorded_storage.names,
    "messages": recorded_wire.examples,
    "imports": recorded_imports.shown_paths,
    "members": recorded_imports.members,
    "programs": recorded_imports.started,
}
#: In these, a line that left the docs stays in the record: code that uses it exists.
KEPT = {"imports", "programs"}


@dataclass(frozen=True, slots=True)
class Differences:
    """Between a record and the code; each line names its subject."""

    broken: list[str]
    added: list[str]


def collected(name: str) -> Record:
    """The current state of the code, in the form of the JSON file."""
    now: Record = json.loads(json.dumps(RECORDS[name]()))
    return now


def recorded(name: str) -> Record:
    file = _file(name)
    found: Record = json.loads(file.read_text()) if file.exists() else {}
    return found


def compare(name: str, before: Record, now: Record) -> Differences:
    """What is missing or different, and what is new."""
    old, new = dict(_lines(name, before)), dict(_lines(name, now))
    gone = [] if name in KEPT else [path for path in old if path not in new]
    changed = [path for path in old if path in new and old[path] != new[path]]
    fresh = [path for path in new if path not in old]
    if name == "messages":
        # A new field changes the bytes; another test checks that recorded bytes can be read.
        added = {path.split(" / ")[1] for path in fresh}
        changed = [one for one in changed if not _is_grown(one, added)]
    return Differences(
        [f"{path} is gone" for path in _topmost(gone)]
        + [f"{path} has changed: was {old[path]}, is {new[path]}" for path in changed],
        [f"{path} is new: {REVIEW}" for path in _topmost(fresh)],
    )


def _is_grown(path: str, added: set[str]) -> bool:
    return path.endswith(" / msgpack") and path.split(" / ")[1] in added


def _lines(path: str, part: Any) -> Iterator[tuple[str, str]]:
    """Every node by its path. Entries of a list of texts are compared as a set."""
    if isinstance(part, dict):
        yield path, ""
        for key, below in part.items():
            yield from _lines(f"{path} / {key}", below)
    elif isinstance(part, list):
        yield path, ""
        for number, below in enumerate(part):
            if isinstance(below, str) and not path.startswith("messages"):
                yield f"{path} / {below}", ""
            else:
                yield from _lines(f"{path} / {number}", below)
    else:
        yield path, json.dumps(part)


def _topmost(paths: list[str]) -> list[str]:
    """The paths that are not below another one of them."""
    known = set(paths)
    return [path for path in paths if path.rpartition(" / ")[0] not in known]


def merged(name: str, before: Record, now: Record) -> Record:
    """The record to write: the state of the code, and lines that stay."""
    if name not in KEPT:
        return now
    return {key: _joined(before.get(key), now.get(key)) for key in {*before, *now}}


def _joined(before: Any, now: Any) -> Any:
    if isinstance(before, list) and isinstance(now, list):
        return sorted({*before, *now})
    return before if now is None else now


def main(task: str) -> int:
    now = {name: collected(name) for name in RECORDS}
    found = [compare(name, recorded(name), now[name]) for name in RECORDS]
    broken = [line for one in found for line in one.broken]
    added = [line for one in found for line in one.added]
    if broken or (added and task != "write"):
        sys.stderr.write("\n".join([*broken, *added]) + "\n")
        return 1
    if task == "write":
        FOLDER.mkdir(parents=True, exist_ok=True)
        for name in RECORDS:
            _file(name).write_text(as_text(merged(name, recorded(name), now[name])))
    return 0


def as_text(record: Record) -> str:
    return json.dumps(record, indent=1, sort_keys=True) + "\n"


def _file(name: str) -> Path:
    return FOLDER / f"{name}.json"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
