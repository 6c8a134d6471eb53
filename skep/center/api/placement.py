"""Which agents work for a run, why others do not, and what would move if agents left or joined.

Run by centers. Reading and previews change nothing: no agent is chosen here.
"""

from __future__ import annotations

from skep.center.api.agent_names import AGENT_NAMES, agent_named, agent_or_new
from skep.center.api.path_names import RUN_NAMES, run_name
from skep.center.http.authentication import Role
from skep.center.http.endpoint import Call, Endpoint, Scoping
from skep.center.http.scoping import agents_in_scope, runs_inside
from skep.errors import InvalidInput, UnknownAgent, UnknownRun
from skep.model.run import Run, RunSettings
from skep.placement.eligibility import explain
from skep.placement.hash_keys import key_of
from skep.placement.move_preview import preview
from skep.placement.placer import need_of
from skep.store.ports.placement import Allocation, AllocationSlot
from skep.wire.api.placement import (
    GET_RUN_PLACEMENT,
    LIST_AGENT_ALLOCATIONS,
    PREVIEW_PLACEMENT,
    AgentChange,
    AllocationLine,
    AllocationsOf,
    PlacementView,
    PreviewView,
    RunEffect,
    SeatLine,
)

#: Number of keys in a preview: of the newest requests of a run, or generated ones.
SAMPLE = 10_000
ALLOCATIONS_LIMIT = 100


async def slots_of(call: Call, run: Run) -> list[SeatLine]:
    """The agents that were chosen for a run."""
    if run.settings.placement.plain:
        return []
    allocation = await call.services.store.allocations.get(run.id)
    return _slots(call, allocation)


def _slots(call: Call, allocation: Allocation | None) -> list[SeatLine]:
    seats = allocation.seats if allocation else ()
    if call.who.scope:
        inside = {view.id for view in agents_in_scope(call, call.services.roster.views)}
        seats = [one for one in seats if one.agent in inside]
    return [SeatLine(one.agent, _state(call, one), one.since, one.until, one.why) for one in seats]


def _state(call: Call, seat: AllocationSlot) -> str:
    if seat.until:
        return "given up"
    roster, moment = call.services.roster, call.services.placement.placer.moment
    view = roster.view(seat.agent)
    if (
        view is None
        or roster.given_up(seat.agent)
        or not view.alive(moment.now, moment.alive_after)
    ):
        return "away"
    return "present" if view.enabled else view.aside or "disabled"


async def show_placement(call: Call) -> PlacementView:
    """The placement of a run, and which agents are eligible."""
    services = call.services
    run = await services.store.runs.get(run_name(call.path["run"]))
    views = agents_in_scope(call, await services.roster.refresh())
    allocation = await services.store.allocations.get(run.id)
    placement = run.settings.placement
    moment = services.placement.placer.moment
    return PlacementView(
        run.id,
        placement,
        placement.in_words(),
        _slots(call, allocation),
        explain(views, need_of(run.settings, allocation), moment),
        allocation.at if allocation else None,
        allocation.released_at if allocation else None,
    )


async def show_preview(call: Call) -> PreviewView:
    """What would move if agents left or joined."""
    query: AgentChange = call.query
    services = call.services
    remove = [await agent_named(call, name) for name in _names(query.remove)]
    # An agent that would join need not be registered yet.
    add = [await agent_or_new(call, name) for name in _names(query.add)]
    if not remove and not add:
        raise InvalidInput("no agents given; send remove=A or add=B")
    await services.roster.refresh()
    settings, keys, of = await _keys(call, query.run)
    now = [view.id for view in services.placement.placer.fitting(settings)]
    then = sorted({*now, *add} - set(remove))
    runs = [*await _of_chosen(call, set(remove)), *await _of_fitting(call, set(remove))]
    notes = [
        *_without_keys(call, settings, remove),
        *(f"{a} is there already" for a in add if a in now),
    ]
    return PreviewView(preview(now, then, keys), runs, of, notes)


def _without_keys(call: Call, settings: RunSettings, agents: list[str]) -> list[str]:
    """One note for each agent that gets no keys at present."""
    services = call.services
    found = [view for agent in agents if (view := services.roster.view(agent)) is not None]
    verdicts = explain(found, need_of(settings), services.placement.placer.moment)
    return [f"{one.agent} has no keys now: {one.detail}" for one in verdicts if not one.fits]


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]


async def _keys(call: Call, name: str) -> tuple[RunSettings, list[str], str]:
    """The keys of a run's newest requests; without a run, or for an empty one, generated keys."""
    settings = RunSettings()
    if name:
        run = await call.services.store.runs.get(run_name(name))
        settings = run.settings
        if not settings.placement.traits.keyed:
            words = settings.placement.in_words()
            raise InvalidInput(f"run {name} has placement {words}; keys move only in hashed runs")
        sample = await call.services.store.allocations.sample(name, SAMPLE)
        if sample:
            keys = [key_of(wanted, settings.placement.key) for wanted in sample]
            return settings, keys, f"{len(keys)} newest requests of run {name}"
    return settings, [f"key-{n}" for n in range(SAMPLE)], f"{SAMPLE} generated keys"


async def _of_chosen(call: Call, gone: set[str]) -> list[RunEffect]:
    """The effect on runs that have chosen any of these agents, when all of them leave."""
    allocations = call.services.store.allocations
    lists = [await allocations.of_agent(agent, ALLOCATIONS_LIMIT) for agent in sorted(gone)]
    found = {one.run: one for each in lists for one in each if one.released_at is None}
    effects: list[RunEffect] = []
    for one in found.values():
        lost = gone.intersection(one.agents)
        if not lost:
            continue
        belonging = 0
        if one.settings.placement.traits.chains:
            belonging = sum([await allocations.belonging(one.run, agent) for agent in lost])
        words = one.settings.placement.in_words()
        effects.append(RunEffect(one.run, words, _consequence(one, lost, belonging)))
    return effects


def _consequence(allocation: Allocation, lost: set[str], belonging: int) -> str:
    placement = allocation.settings.placement
    left = len([one for one in allocation.agents if one not in lost])
    on = "1 agent continues" if left == 1 else f"{left} agents continue"
    if not placement.traits.chains:
        return f"{on} with it" if left else "it waits until one of its agents is back"
    if not belonging and left:
        return f"no open request belongs to these agents; {on}"
    then = {
        "stop": "the run stops",
        "wait": f"it waits {placement.patience:g} s for them, then it stops",
        "restart": "their chains restart on another agent",
    }
    theirs = "1 open request belongs" if belonging == 1 else f"{belonging} open requests belong"
    why = f"{theirs} to these agents" if belonging else "none of its agents is left"
    return f"{why}: {then[placement.when_gone]}"


async def _of_fitting(call: Call, gone: set[str]) -> list[RunEffect]:
    """The effect on runs that choose no agents and have no other eligible agent."""
    placer = call.services.placement.placer
    await placer.refresh()
    effects: list[RunEffect] = []
    for one in placer.open:
        placement = one.settings.placement
        if not placement.traits.chooses:
            fit = {view.id for view in placer.fitting(one.settings)}
            if fit and not fit - gone:
                effect = "no other agent is eligible: its requests wait until one is"
                effects.append(RunEffect(one.run, placement.in_words(), effect))
    return effects


async def list_allocations(call: Call) -> AllocationsOf:
    """The runs that an agent was chosen for."""
    agent = await agent_named(call, call.path["agent"])
    found = await call.services.store.allocations.of_agent(agent, ALLOCATIONS_LIMIT)
    if call.who.scope:
        inside = await runs_inside(call, (one.run for one in found))
        found = [one for one in found if one.run in inside]
    lines: list[AllocationLine] = []
    for one in found:
        seat = next(seat for seat in one.seats if seat.agent == agent)
        words = one.settings.placement.in_words()
        until = seat.until or one.released_at
        lines.append(AllocationLine(one.run, one.state, words, seat.since, until))
    return AllocationsOf(lines)


ENDPOINTS = (
    Endpoint(
        GET_RUN_PLACEMENT,
        Role.VIEWER,
        show_placement,
        "Show which agents may work for a run, and why others may not",
        errors=(InvalidInput, UnknownRun),
        tag="placement",
        scoped=Scoping.RUN,
        parameters=RUN_NAMES,
    ),
    Endpoint(
        PREVIEW_PLACEMENT,
        Role.VIEWER,
        show_preview,
        "Show what would move if agents left or joined",
        errors=(InvalidInput, UnknownAgent, UnknownRun),
        tag="placement",
        notes="Nothing is changed.",
    ),
    Endpoint(
        LIST_AGENT_ALLOCATIONS,
        Role.VIEWER,
        list_allocations,
        "List the runs that an agent was chosen for",
        errors=(InvalidInput, UnknownAgent),
        tag="placement",
        scoped=Scoping.AGENT,
        parameters=AGENT_NAMES,
    ),
)
