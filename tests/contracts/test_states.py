"""The tables of states are whole, and their page shows them as they are."""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import Enum
from pathlib import Path
from typing import Any

import pytest

from skep.model.failures.failure_class import HOPELESS, FailureClass
from skep.model.ledger import Ledger
from skep.model.states import (
    BLOCK_CHANGES,
    CLAIMABLE,
    FINAL_STATES,
    REQUEST_CHANGES,
    RUN_CHANGES,
    BlockState,
    RequestState,
    RunState,
)

PAGE = Path(__file__).parents[2] / "docs" / "why" / "states.md"
TABLES: dict[str, tuple[type[Enum], Mapping[Any, frozenset[Any]]]] = {
    "Requests": (RequestState, REQUEST_CHANGES),
    "Blocks": (BlockState, BLOCK_CHANGES),
    "Runs": (RunState, RUN_CHANGES),
}
each_table = pytest.mark.parametrize(("states", "changes"), TABLES.values(), ids=TABLES.keys())


@each_table
def test_every_state_has_a_row(states: type[Enum], changes: Mapping[Any, Any]) -> None:
    assert set(changes) == set(states)


@each_table
def test_every_target_is_a_state_and_none_leads_to_itself(
    states: type[Enum], changes: Mapping[Any, frozenset[Any]]
) -> None:
    for state, targets in changes.items():
        assert targets <= set(states)
        assert state not in targets


@each_table
def test_every_state_but_the_first_can_be_reached(
    states: type[Enum], changes: Mapping[Any, frozenset[Any]]
) -> None:
    first, *others = states
    seen, open_ = {first}, [first]
    while open_:
        fresh = changes[open_.pop()] - seen
        seen |= fresh
        open_ += fresh
    assert seen >= set(others)


def test_a_final_request_has_no_way_out_but_by_hand_from_dead() -> None:
    """A dead request can be sent again or given up; the other ends are for good."""
    ways_out = {state: REQUEST_CHANGES[state] for state in FINAL_STATES}
    by_hand = {RequestState.WAITING, RequestState.CANCELLED}
    assert ways_out.pop(RequestState.DEAD) == by_hand
    assert set(ways_out.values()) == {frozenset()}


def test_every_request_can_come_to_an_end() -> None:
    for state in set(RequestState) - FINAL_STATES:
        seen, open_ = set[RequestState](), [state]
        while open_:
            fresh = REQUEST_CHANGES[open_.pop()] - seen
            seen |= fresh
            open_ += fresh
        assert RequestState.DONE in seen


def test_blocks_have_the_numbers_of_the_founding_documents() -> None:
    """C7: ready 1, using 2, success 4, failed 8, retry 16."""
    numbers = {state.name.lower(): int(state) for state in BlockState}
    assert numbers == {"ready": 1, "using": 2, "success": 4, "failed": 8, "retry": 16}


def test_only_what_can_be_used_next_is_claimable() -> None:
    can_be_used = {state for state, to in BLOCK_CHANGES.items() if BlockState.USING in to}
    assert set(CLAIMABLE) == can_be_used


def test_the_ledger_has_a_count_for_every_state() -> None:
    fields = set(Ledger.__struct_fields__)
    states = {state.name.lower() for state in RequestState}
    assert fields == {"accepted", "forgotten"} | states


def test_a_hopeless_failure_is_a_failure() -> None:
    assert set(FailureClass) > HOPELESS


@pytest.mark.parametrize("title", TABLES)
def test_the_page_shows_the_table(title: str) -> None:
    _, changes = TABLES[title]
    section = PAGE.read_text().split(f"## {title}\n")[1].split("\n## ")[0]
    rows = re.findall(r"^\| (\w+) \| ?(.*?) ?\|$", section, flags=re.MULTILINE)
    shown = {start: targets for start, targets in rows if start != "from"}
    expected = {
        state.name.lower(): ", ".join(sorted(target.name.lower() for target in targets))
        for state, targets in changes.items()
    }
    assert shown == expected
