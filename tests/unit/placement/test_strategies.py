"""Strategies of packages: what their mistakes cost, and what agents are told about them."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any

import pytest

from skep.errors import NotEnoughAgents
from skep.model.downloader_kinds import DownloaderKind, downloader_kind
from skep.model.fleet.agent import AgentView, Registration
from skep.model.fleet.placement import Placement
from skep.model.fleet.strategy_traits import BUILT_IN, Strategy, strategy_named, strategy_names
from skep.model.run import RunSettings, told_to_agents
from skep.model.states import RunState
from skep.placement.strategies.guarded import GuardedStrategy
from skep.placement.strategies.registry import OWN, Strategies
from skep.store.ports.placement import Allocation, AllocationSlot, Placing, Wanted
from skep.testing.clock import ManualClock

ALLOCATION = Allocation("r", 1, RunState.RUNNING, RunSettings(), 0.0, [AllocationSlot("a", 0, 0.0)])
FIT = [AgentView(Registration(name, name), True, 0.0, 0.0) for name in "ab"]


class Now:
    """Both agents are there."""

    rng = Random(1)

    def present(self, agent: str) -> bool:
        return agent in {"a", "b"}

    def fitting(self, settings: RunSettings) -> list[AgentView]:  # noqa: ARG002 - as the contract has it
        return FIT


class Careless:
    """Raises wherever it can, or answers what it was told to."""

    traits = Strategy("careless", chooses=True)
    by_session = chained = False

    def __init__(self, chosen: Sequence[Any] | None = None, *, places: bool = False) -> None:
        self._chosen = chosen
        self._places = places

    def choose(self, fit: Sequence[AgentView], wanted: int, rng: Random) -> list[str]:  # noqa: ARG002 - as the contract has it
        if self._chosen is None:
            raise ZeroDivisionError
        return list(self._chosen)

    def placing(self, allocation: Allocation, now: Any) -> Placing | None:  # noqa: ARG002 - as the contract has it
        if not self._places:
            raise ZeroDivisionError
        return self

    def target(self, wanted: Wanted) -> str | None:
        if wanted.host == "bad":
            raise ZeroDivisionError
        return "a"


def guarded(strategy: Careless, clock: ManualClock | None = None) -> GuardedStrategy:
    return GuardedStrategy(strategy, clock or ManualClock())


def test_every_strategy_has_one_file_and_its_own_traits() -> None:
    made = [make() for make in OWN]
    assert tuple(one.traits for one in made) == BUILT_IN
    assert len({type(one).__module__ for one in made}) == len(BUILT_IN)


def test_mistakes_of_a_strategy_stay_with_its_runs(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL)
    assert guarded(Careless()).placing(ALLOCATION, Now()) is None
    placing = guarded(Careless(places=True)).placing(ALLOCATION, Now())
    assert placing is not None
    assert [placing.target(Wanted("u", host)) for host in ("bad", "good")] == [None, "a"]
    with pytest.raises(NotEnoughAgents, match="careless failed: ZeroDivisionError"):
        guarded(Careless()).choose(FIT, 1, Random(1))
    for chosen in (["c"], ["a", "c"], FIT):
        with pytest.raises(NotEnoughAgents, match="do not all fit"):
            guarded(Careless(chosen)).choose(FIT, 1, Random(1))
    for chosen in ([], ["a"], ["a", "a"], ["a", "b", "b"]):
        with pytest.raises(NotEnoughAgents, match="2 different agents are needed"):
            guarded(Careless(chosen)).choose(FIT, 2, Random(1))
    assert guarded(Careless(["b"])).choose(FIT, 1, Random(1)) == ["b"]


def test_a_strategy_that_raises_is_logged_once_and_then_once_a_minute(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The dispatcher asks it twice a second, for each run and each request."""
    clock = ManualClock()
    fails, places = guarded(Careless(), clock), guarded(Careless(places=True), clock)
    for _ in range(119):  # not quite a minute
        fails.placing(ALLOCATION, Now())
        with pytest.raises(NotEnoughAgents):
            fails.choose(FIT, 1, Random(1))
        placing = places.placing(ALLOCATION, Now())
        assert placing is not None
        placing.target(Wanted("u", "bad"))
        clock.advance(0.5)
    assert len(caplog.records) == 3
    clock.advance(1.0)
    fails.placing(ALLOCATION, Now())
    assert "cannot place run r (119 times since the last line)" in caplog.text
    assert len(caplog.records) == 4


def test_a_placing_without_its_attributes_stays_with_its_runs() -> None:
    class Empty(Careless):
        def placing(self, allocation: Allocation, now: Any) -> Any:  # noqa: ARG002 - as the contract has it
            return object()

    assert guarded(Empty()).placing(ALLOCATION, Now()) is None


def test_a_strategy_that_is_not_installed_any_more_places_nothing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    strategies = Strategies(ManualClock())
    assert strategies.named("gone").placing(ALLOCATION, Now()) is None
    assert strategies.named("gone") is strategies.named("gone")
    assert caplog.text.count("gone is not installed here") == 1, "told once"
    placement = Placement("gone")
    assert (placement.plain, placement.wanted, placement.in_words()) == (False, 1, "gone")


@pytest.mark.parametrize("strategy", [one.name for one in BUILT_IN])
def test_agents_are_told_names_that_come_with_skep(strategy: str) -> None:
    """Agents of earlier releases refuse a message with another name."""
    settings = RunSettings(placement=Placement(strategy, 2, group="eu"))
    assert told_to_agents(settings) == settings
    added = RunSettings(placement=Placement("added", 2, group="eu"), retries=3)
    told = told_to_agents(added)
    assert (told.placement.strategy, told.placement.group, told.retries) == ("any", "eu", 3)


def test_a_package_cannot_take_the_name_of_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither that of a strategy of ours, nor one that its traits do not say."""
    (tmp_path / "odd_strategies.py").write_text(
        "from skep.model.fleet.strategy_traits import Strategy\n"
        "class Odd:\n    traits = Strategy('odd', chains=True)\n"
    )
    info = tmp_path / "odd_strategies-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: odd-strategies\nVersion: 1.0\n")
    names = ("odd", "fixed", "other")
    entries = "".join(f"{name} = odd_strategies:Odd\n" for name in names)
    (info / "entry_points.txt").write_text(f"[skep.placement]\n{entries}")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert strategy_names() == ("any", "fixed", "chained", "hashed", "odd")
    assert strategy_named("odd").chains
    assert not strategy_named("fixed").chains
    assert not strategy_named("other").chains


def test_packages_that_are_not_what_they_should_be(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """An entry point that leads to something else, or ends the process that loads it, is left out;
    the other strategies and kinds are there."""
    caplog.set_level(logging.CRITICAL)
    names = "table = odd_package:TABLE\nends = odd_package.ends:Strategy\n"
    (tmp_path / "odd_package").mkdir()
    (tmp_path / "odd_package/__init__.py").write_text("TABLE = {}\n")
    (tmp_path / "odd_package/ends.py").write_text("raise SystemExit(3)\n")
    (tmp_path / "odd_package-1.dist-info").mkdir()
    (tmp_path / "odd_package-1.dist-info/entry_points.txt").write_text(
        f"[skep.placement]\n{names}[skep.downloaders]\n{names}"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    assert strategy_names() == tuple(one.name for one in BUILT_IN)
    assert {name: downloader_kind(name) for name in ("table", "ends")} == {
        name: DownloaderKind(name) for name in ("table", "ends")
    }
