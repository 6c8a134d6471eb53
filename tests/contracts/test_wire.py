"""What centers and agents say to each other may only grow (fault 44).

tests/contracts/wire.json has every message as it was last agreed on. When this fails, read
what it says; when a field was added rightly, run `python tools/wire.py write` and commit it.
"""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest

from tools import wire

ADDED = "a message has changed rightly: run `python tools/wire.py write` and commit wire.json"


@pytest.fixture(scope="module")
def kept() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(wire.FILE.read_text())
    return found


def test_no_older_side_is_left_behind(kept: dict[str, Any]) -> None:
    """Fault 44: fields are added, with defaults; none goes, none changes its type."""
    assert wire.broken(kept, wire.wire_structs()) == []


def test_every_message_is_written_down(kept: dict[str, Any]) -> None:
    assert kept == wire.wire_structs(), ADDED


def _without(shape: dict[str, Any]) -> None:
    del shape["Heartbeat"]["fields"]["agent"]


def _retyped(shape: dict[str, Any]) -> None:
    shape["LeaseAsk"]["fields"]["wait"] = "int"


def _demanding(shape: dict[str, Any]) -> None:
    shape["Report"]["fields"]["mood"] = "str, required"


def _stricter(shape: dict[str, Any]) -> None:
    shape["LeaseAsk"]["fields"]["want"] += ", required"


def _shifted(shape: dict[str, Any]) -> None:
    fields = shape["Held"]["fields"]
    shape["Held"]["fields"] = {"first": "int", **fields}


def _closed(shape: dict[str, Any]) -> None:
    shape["Code"] |= {"closed": True}
    shape["Code"]["fields"]["more"] = "str"


def _gone(shape: dict[str, Any]) -> None:
    del shape["GiveBack"]


def _grown(shape: dict[str, Any]) -> None:
    shape["Report"]["fields"]["mood"] = "str"


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (_without, "Heartbeat.agent is missing"),
        (_retyped, "LeaseAsk.wait was float: add a field of another name"),
        (_demanding, "Report.mood is new and needs a default"),
        (_stricter, "LeaseAsk.want had a default"),
        (_shifted, "Held is an array: new fields go to its end"),
        (_closed, "Code refuses unknown fields"),
        (_gone, "GiveBack is missing"),
        (_grown, ""),
    ],
)
def test_what_breaks_an_older_side_is_named(kept: dict[str, Any], change: Any, said: str) -> None:
    changed = copy.deepcopy(kept)
    change(changed)
    complaints = wire.broken(kept, changed)
    assert [said in complaint for complaint in complaints] == ([True] if said else [])
