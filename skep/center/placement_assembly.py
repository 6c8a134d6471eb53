"""The rooms of placement put together for one center. Assembly only.

Run once when a center is built. Nothing is started, and nothing is decided here.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from random import Random

from skep.bus.ports import Bus
from skep.center.agent_commands import Hub
from skep.fleet.roster import Roster
from skep.lanes.lane_check import remove_runs
from skep.model.run import Run
from skep.placement.allocator import Allocator
from skep.placement.gone_agents import GoneAgents
from skep.placement.placer import Placer
from skep.runtime.clock import Clock
from skep.settings import Settings
from skep.store.ports import Store


@dataclass(frozen=True, slots=True)
class PlacementAssembly:
    """Who may take what, who is chosen, and what becomes of runs whose agents are gone."""

    roster: Roster
    placer: Placer
    allocator: Allocator
    gone_agents: GoneAgents


def build_placement(
    settings: Settings,
    store: Store,
    bus: Bus,
    hub: Hub,
    roster: Roster,
    clock: Clock,
    rng: Random,
    there_is_work: Callable[[], None],
    look_again: Callable[[], None],
    moved: Callable[[Run], Awaitable[None]],
) -> PlacementAssembly:
    """Nothing is started yet. `there_is_work` wakes agents that wait, `look_again` the
    dispatcher and the drivers of runs, `moved` everybody who works for a run."""
    placer = Placer(settings.center, store, roster, clock, rng, there_is_work)
    allocator = Allocator(store, roster, placer, clock, rng, hub.send)
    gone_agents = GoneAgents(
        settings.center,
        store,
        roster,
        placer,
        allocator,
        clock,
        rng,
        bus.lanes.remove,
        partial(remove_runs, bus.lanes),
        look_again,
        moved,
    )
    return PlacementAssembly(roster, placer, allocator, gone_agents)
