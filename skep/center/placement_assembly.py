"""Assembles the parts of placement for one center.

Run once when a center is built. Nothing is started, and nothing is decided here.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial

from skep.center.agent_commands import Hub
from skep.center.center_signals import CenterSignals
from skep.center.foundation import Foundation
from skep.fleet.roster import Roster
from skep.lanes.reconcile_lanes import remove_runs
from skep.model.run import Run
from skep.placement.allocator import AllocationParts, Allocator
from skep.placement.gone_agents import GoneAgents
from skep.placement.placer import Placer


@dataclass(frozen=True, slots=True)
class PlacementAssembly:
    """Eligibility, the choice of agents, and the handling of runs whose agents are gone."""

    roster: Roster
    placer: Placer
    allocator: Allocator
    gone_agents: GoneAgents
    parts: AllocationParts


def build_placement(
    base: Foundation,
    hub: Hub,
    placer: Placer,
    roster: Roster,
    signals: CenterSignals,
    moved: Callable[[Run], Awaitable[None]],
) -> PlacementAssembly:
    """Build all parts; nothing is started. `moved` tells the processes of a run that its state
    has changed."""
    store, clock, rng, lanes = base.store, base.clock, base.rng, base.bus.lanes
    allocator = Allocator(store, roster, placer, clock, rng, hub.send, base.closing.is_set)
    parts = AllocationParts(store, roster, placer, allocator, clock, rng)
    gone_agents = GoneAgents(
        base.settings.center,
        parts,
        lanes.remove,
        partial(remove_runs, lanes),
        signals.look_again,
        moved,
    )
    return PlacementAssembly(roster, placer, allocator, gone_agents, parts)
