"""What an agent keeps of its lives and its runs, whatever happens while it writes."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from skep.agent.session import Session
from skep.agent.workspace import Workspace
from skep.model.run import RunSettings


def reopened(folder: Path) -> set[str]:
    space = Workspace(folder)
    space.open()
    return set(space.runs())


def test_a_torn_allocation_is_forgotten(tmp_path: Path) -> None:
    """Fault 18: whatever a disk makes of a file."""
    space = Workspace(tmp_path)
    space.open()
    for run in ("a", "b"):
        space.allocate(run, RunSettings())
    file = tmp_path / "runs" / f"{b'a'.hex()}.run"
    whole = file.read_bytes()
    for size in (0, 1, len(whole) // 2, len(whole) - 1):
        file.write_bytes(whole[:size])
        assert reopened(tmp_path) == {"b"}
    file.write_bytes(os.urandom(200))
    assert reopened(tmp_path) == {"b"}


def life(folder: Path) -> Session:
    session = Session(folder)
    session.open()
    return session


def test_every_life_has_a_mark_and_knows_the_last_one(tmp_path: Path) -> None:
    """Fault 66."""
    first = life(tmp_path)
    assert (first.known, bool(first.mark)) == ((), True)
    first.taken()
    second = life(tmp_path)
    assert (second.known, second.mark != first.mark) == ((first.mark,), True)


def test_a_life_that_never_heard_an_answer_is_the_next_one(tmp_path: Path) -> None:
    """Fault 18: killed between the center's commit and the file; the center may know either."""
    first = life(tmp_path)
    first.taken()
    second = life(tmp_path)
    third = life(tmp_path)
    assert (third.mark, third.known) == (second.mark, (first.mark,))
    third.taken()
    assert life(tmp_path).known == (second.mark,)


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b"\xff\xfe", b'{"mark": 3}'])
def test_a_torn_mark_is_a_folder_without_a_past(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "session").write_bytes(data)
    session = life(tmp_path)
    assert (session.known, bool(session.mark)) == ((), True)
    assert json.loads((tmp_path / "session").read_bytes())["next"] == session.mark
