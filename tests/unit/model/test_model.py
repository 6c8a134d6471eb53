"""The nouns: lanes, blocks, the ledger, and what travels as arrays."""

from __future__ import annotations

import re

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from skep.model.block import BlockRef, BlockReport, Held, Leased
from skep.model.fleet.agent import AgentView, Registration, Vitals
from skep.model.lane import HIGHEST, LOWEST, Lane, enters_at_head, lane_of
from skep.model.ledger import Ledger
from skep.model.message_bounds import PRINTABLE, is_printable
from skep.model.request import DEFAULT_PRIORITY, NewRequest, Outcome, Work
from skep.model.run import RunId, RunSettings
from skep.model.states import RequestState

PRIORITIES = range(HIGHEST, LOWEST + 1)
counts = st.integers(min_value=0, max_value=10**12)


def test_seven_priorities_in_four_lanes() -> None:
    """D2: super (-1), high (0, 1), mid (2, 3), low (4, 5); the lowest is the default."""
    table = {priority: lane_of(priority).label for priority in PRIORITIES}
    assert table == {
        -1: "super",
        0: "high",
        1: "high",
        2: "mid",
        3: "mid",
        4: "low",
        5: "low",
    }
    assert DEFAULT_PRIORITY == LOWEST


def test_the_even_priority_enters_at_the_head_and_the_odd_one_at_the_tail() -> None:
    """D2."""
    at_head = [priority for priority in PRIORITIES if enters_at_head(priority)]
    assert at_head == [0, 2, 4]


@given(st.integers(), st.integers())
def test_a_more_urgent_request_is_never_in_a_later_lane(one: int, other: int) -> None:
    """D2, for every number that could ever be given."""
    first, second = sorted((one, other))
    assert lane_of(first) <= lane_of(second)


@given(st.integers())
def test_every_number_has_a_lane(priority: int) -> None:
    """D2: beyond the ends of the table the nearest end counts."""
    assert lane_of(priority) == lane_of(max(HIGHEST, min(priority, LOWEST)))


@given(st.integers(min_value=0, max_value=LOWEST))
def test_of_two_priorities_in_a_lane_only_the_more_urgent_one_enters_at_the_head(
    priority: int,
) -> None:
    """D2."""
    partner = priority ^ 1
    assert lane_of(partner) is lane_of(priority)
    assert enters_at_head(min(priority, partner))
    assert not enters_at_head(max(priority, partner))


def test_lanes_are_drained_in_the_order_of_their_numbers() -> None:
    """D2: super, then high, then mid, then low."""
    assert [lane.label for lane in sorted(Lane)] == ["super", "high", "mid", "low"]


def test_a_block_knows_its_lane_and_its_end_of_it() -> None:
    ref = BlockRef(id=1, run="r", priority=2, size=100)
    assert (ref.lane, ref.at_head) == (Lane.MID, True)
    assert ref.target == ""


@given(st.fixed_dictionaries({state.name.lower(): counts for state in RequestState}))
def test_a_ledger_that_adds_up_has_nothing_unaccounted(by_state: dict[str, int]) -> None:
    """Accepted is the sum over all states; open and final make up the whole."""
    total = sum(by_state.values())
    ledger = Ledger(accepted=total, **by_state)
    final = ledger.done + ledger.dead + ledger.cancelled + ledger.expired
    assert ledger.total == total
    assert ledger.unaccounted == 0
    assert ledger.open + final == total
    assert "UNACCOUNTED" not in ledger.line()


@given(counts, st.integers(min_value=-100, max_value=100).filter(bool))
def test_a_ledger_that_does_not_add_up_says_so(done: int, missing: int) -> None:
    ledger = Ledger(accepted=done + missing, done=done)
    assert ledger.unaccounted == missing
    assert ledger.line().endswith(f"UNACCOUNTED {missing}")


def test_the_line_of_a_ledger_names_the_states_that_count() -> None:
    """U7: seven zeros say nothing; without requests the line still says so."""
    assert Ledger(accepted=3, done=2, dead=1).line() == "3 accepted = 2 done + 1 dead"
    assert Ledger(accepted=2, waiting=1, leased=1).line() == "2 accepted = 1 waiting + 1 leased"
    assert Ledger().line() == "0 accepted"
    assert Ledger(accepted=1).line() == "1 accepted  UNACCOUNTED 1"


def test_an_agent_is_alive_while_its_last_beat_is_younger_than_the_limit() -> None:
    """C3: younger than 11 s; at 11 s it is dead."""
    view = AgentView(Registration("a1", "one"), enabled=True, registered_at=0, seen_at=100.0)
    assert view.alive(now=110.999, alive_after=11)
    assert not view.alive(now=111.0, alive_after=11)
    assert view.id == "a1"


def test_a_disabled_agent_is_still_alive() -> None:
    """C3: it keeps its heartbeat and gets no new work."""
    view = AgentView(Registration("a1", "one"), enabled=False, registered_at=0, seen_at=0)
    assert view.alive(now=1, alive_after=11)


def test_a_registration_and_a_heartbeat_carry_what_they_must() -> None:
    """C2: two different messages."""
    registration = {"id", "name", "group", "labels", "address", "os", "cpus", "memory", "version"}
    assert registration <= set(Registration.__struct_fields__)
    beat = {"cpu", "free_memory", "processes", "active", "rate"}
    assert beat <= set(Vitals.__struct_fields__)


works = st.builds(
    Work,
    id=st.integers(min_value=1, max_value=2**53),
    uri=st.text(min_size=1),
    method=st.sampled_from(["GET", "POST"]),
    headers=st.dictionaries(st.text(), st.text(), max_size=3),
    body=st.binary(max_size=50),
)
outcomes = st.builds(
    Outcome,
    id=st.integers(min_value=1, max_value=2**53),
    failure=st.sampled_from(["", "network", "timeout"]),
    status=st.integers(min_value=0, max_value=599),
    retry_after=st.none() | st.floats(min_value=0, max_value=1e6),
    final_uri=st.text(),
)


@given(st.lists(works, max_size=5))
def test_work_comes_back_as_it_was_sent(batch: list[Work]) -> None:
    """The body of a block is a msgpack list of work."""
    body = msgspec.msgpack.encode(batch)
    assert msgspec.msgpack.decode(body, type=list[Work]) == batch


@given(st.lists(outcomes, max_size=5), st.binary(max_size=50))
def test_a_report_comes_back_as_it_was_sent(batch: list[Outcome], frames: bytes) -> None:
    report = BlockReport(block=1, token=2, outcomes=batch, frames=frames)
    encoded = msgspec.msgpack.encode(report)
    assert msgspec.msgpack.decode(encoded, type=BlockReport) == report


def test_defaults_cost_nothing_on_the_wire() -> None:
    """A plain request is its address, nothing more."""
    assert msgspec.json.encode(NewRequest("http://x/")) == b'{"uri":"http://x/"}'


def test_a_lease_is_held_by_its_token() -> None:
    assert Leased(5, 3, "r", 1, b"").held == Held(block=5, token=3)


def test_a_request_with_an_unknown_field_is_refused() -> None:
    """A misspelt field is told to the caller, not dropped."""
    with pytest.raises(msgspec.ValidationError, match="prioritty"):
        msgspec.json.decode(b'{"uri":"http://x/","prioritty":1}', type=NewRequest)


def test_a_run_starts_with_the_defaults_of_the_founding_documents() -> None:
    """D1: 100 requests per block, no retries, 120 s, lowest priority."""
    settings = RunSettings()
    assert (settings.block_size, settings.retries, settings.time_limit) == (100, 0, 120.0)
    assert settings.priority == LOWEST


@pytest.mark.parametrize(
    "wrong",
    [
        {"priority": -2},
        {"priority": 6},
        {"retries": -1},
        {"time_limit": 0},
        {"block_size": 0},
        {"block_size": 1001},
        {"host_delay": -0.1},
        {"accept_status": [99]},
    ],
    ids=str,
)
def test_settings_of_a_run_are_checked(wrong: dict[str, object]) -> None:
    """D1: what is not valid is not stored."""
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert(wrong, RunSettings)


@pytest.mark.parametrize("name", ["a", "quotes-2026.11", "A_b", "x" * 64])
def test_a_run_may_be_called(name: str) -> None:
    assert msgspec.convert(name, RunId) == name


@pytest.mark.parametrize("name", ["", ".hidden", "-x", "a/b", "../x", "a b", "x" * 65, "a\n", "é"])
def test_a_run_may_not_be_called(name: str) -> None:
    """The name becomes part of paths and of URLs."""
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert(name, RunId)


@pytest.mark.parametrize("text", ["", "a b", "\u00e9\u4e2d\U0001f600", "\U0001fae9", "\u0378"])
def test_printable_texts(text: str) -> None:
    """S13: letters that this Python does not know yet are letters."""
    assert is_printable(text)
    assert re.search(PRINTABLE, text)


@pytest.mark.parametrize("text", ["\0", "a\nb", "\x9d", "\u00ad", "\u202e", "\ue000", "\U000e0041"])
def test_texts_that_cannot_be_shown(text: str) -> None:
    """S13: the pattern in the API's description and the center's check are one."""
    assert not is_printable(text)
    assert not re.search(PRINTABLE, text)


def test_half_a_letter_is_not_printable() -> None:
    assert not is_printable("\ud800")
