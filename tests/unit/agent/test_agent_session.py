"""What an agent keeps of its lives and its runs, whatever happens while it writes."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from skep.agent.agent_folder import AgentFolder
from skep.agent.agent_session import AgentSession
from skep.model.fleet.agent import Registration
from skep.model.run import RunSettings
from skep.wire.codec import decode, encode
from skep.wire.messages import Register


def reopened(folder: Path) -> set[str]:
    space = AgentFolder(folder)
    space.open()
    return set(space.names())


def test_a_torn_allocation_is_forgotten(tmp_path: Path) -> None:
    """Fault 18: whatever a disk makes of a file."""
    space = AgentFolder(tmp_path)
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


def life(folder: Path) -> AgentSession:
    session = AgentSession(folder)
    session.open()
    return session


def test_every_life_has_a_mark_and_knows_the_last_one(tmp_path: Path) -> None:
    """Fault 66."""
    first = life(tmp_path)
    assert (first.known, bool(first.mark)) == ((), True)
    first.taken()
    second = life(tmp_path)
    assert (second.known, second.mark != first.mark) == ((first.mark,), True)


def test_a_life_that_never_heard_an_answer_is_known_to_the_next_one(tmp_path: Path) -> None:
    """Fault 18: killed between the center's commit and the file; the center may know either."""
    first = life(tmp_path)
    first.taken()
    second = life(tmp_path)
    third = life(tmp_path)
    assert third.known == (first.mark, second.mark)
    assert third.mark not in third.known, "what is late of the second is not of the third"
    third.taken()
    assert life(tmp_path).known == (third.mark,)


def test_unanswered_lives_fit_into_a_registration(tmp_path: Path) -> None:
    """Fault 10: an agent that is started over and over beside a silent center."""
    first = life(tmp_path)
    first.taken()
    lives = [life(tmp_path) for _ in range(20)]
    last = lives[-1].known
    assert last == (first.mark, *(one.mark for one in lives[-8:-1]))
    about = Registration("agent_1", "one")
    message = Register(about, mark=lives[-1].mark, marks=last)
    assert decode(encode(message), Register).marks == last


def test_a_mark_that_an_older_agent_left_is_known(tmp_path: Path) -> None:
    (tmp_path / "session").write_bytes(b'{"mark": "m1", "next": "m2"}')
    assert life(tmp_path).known == ("m1", "m2")


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b"\xff\xfe", b'{"mark": 3}'])
def test_a_torn_mark_is_a_folder_without_a_past(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "session").write_bytes(data)
    session = life(tmp_path)
    assert (session.known, bool(session.mark)) == ((), True)
    assert json.loads((tmp_path / "session").read_bytes())["tries"] == [session.mark]
