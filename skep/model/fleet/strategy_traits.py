"""Placement strategies and their traits: what the rest of Skep decides by. Pure data.

`placement.traits.chooses` answers what would otherwise be a comparison of names, so that a new
strategy is one new file. How a strategy places requests is in `skep/placement/strategies`.
"""

from __future__ import annotations

import msgspec

from skep.runtime.plug_ins import loaded

#: Entry points of packages that add strategies.
GROUP = "skep.placement"


class Strategy(msgspec.Struct, frozen=True):
    """What a strategy does with the agents of a run. Its name is what jobs and runs say."""

    name: str
    #: Every run has an allocation; without it only a run that asks for certain agents has one.
    allocates: bool = True
    #: `n` agents are chosen once, when the run starts; without it every agent that fits counts.
    chooses: bool = False
    #: Blocks are for all agents of the run, and the first that asks takes one; without it each
    #: block is for one agent.
    shares: bool = False
    #: What is found on a page belongs to the agent that fetched the page.
    chains: bool = False
    #: Each key (`placement.key`) has its agent.
    keyed: bool = False
    #: Applications can be placed by it.
    hosts_apps: bool = False
    #: Which agents get the requests, for the documentation of jobs.
    text: str = ""


ANY = Strategy("any", allocates=False, shares=True, hosts_apps=True, text="every agent that fits.")
FIXED = Strategy(
    "fixed", chooses=True, shares=True, hosts_apps=True, text="`n` agents, chosen once."
)
CHAINED = Strategy(
    "chained",
    chooses=True,
    chains=True,
    text="as `fixed`, and requests found on a page go to the agent that fetched the page.",
)
HASHED = Strategy("hashed", keyed=True, text="each key has its agent.")

#: Strategies that come with Skep. Others are found by their entry points.
BUILT_IN = (ANY, FIXED, CHAINED, HASHED)
_BUILT_IN = {one.name: one for one in BUILT_IN}
BUILT_IN_NAMES = tuple(_BUILT_IN)
#: The description of a field that names a strategy.
STRATEGY_TEXT = (
    " ".join(f"`{one.name}`: {one.text}" for one in BUILT_IN)
    + " Or the name of a strategy that an installed package adds."
)


def strategy_named(name: str) -> Strategy:
    """The traits of a strategy; one that is not installed here has those of the default."""
    return _BUILT_IN.get(name) or added_strategies().get(name) or Strategy(name)


def is_built_in(name: str) -> bool:
    """Whether the strategy comes with Skep, so that every release of an agent knows its name."""
    return name in _BUILT_IN


def strategy_names() -> tuple[str, ...]:
    """Every strategy that a run can be opened with here."""
    return (*_BUILT_IN, *added_strategies())


def added_strategies() -> dict[str, Strategy]:
    """Those of installed packages that can be loaded and carry traits of their own name."""
    found = loaded(GROUP).items()
    traits = {name: getattr(one, "traits", None) for name, one in found if name not in _BUILT_IN}
    return {
        name: one for name, one in traits.items() if isinstance(one, Strategy) and one.name == name
    }
