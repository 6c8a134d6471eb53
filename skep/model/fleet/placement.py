"""Which agents may take a request: the terms that jobs, runs and blocks use.

Pure data. `skep/placement` decides with it; stores and lanes only carry targets. A block's
target is "" (any agent that downloads by HTTP), `kind:NAME` (any agent that offers that kind),
`run:NUMBER` (the agents of one run) or the id of the one agent that may take it.
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from skep.model.downloader_kinds import downloader_kind
from skep.model.fleet.strategy_traits import (
    ANY,
    BUILT_IN_NAMES,
    STRATEGY_TEXT,
    Strategy,
    strategy_named,
)
from skep.model.message_bounds import Texts

ANYBODY = ""
KIND = "kind:"
RUN = "run:"

#: The schema names the strategies that come with Skep; a center takes those of plug-ins too.
StrategyName = Annotated[
    str,
    Meta(
        max_length=50,
        description=STRATEGY_TEXT,
        extra_json_schema={"enum": sorted(BUILT_IN_NAMES)},
    ),
]
Key = Literal["host", "prefix", "session", "git", "uri"]
WhenGone = Literal["stop", "wait", "restart"]


class Placement(msgspec.Struct, frozen=True):
    """Which agents may take the requests of a run."""

    strategy: StrategyName = ANY.name
    #: Number of agents, for `fixed` and `chained`.
    n: Annotated[int, Meta(ge=1, le=10_000)] = 1
    #: What is hashed, for `hashed`: the host, the URI up to its first folder (`prefix`), the
    #: session, the repository (`git`) or the whole URI.
    key: Key = "host"
    #: Agents of this group only.
    group: Annotated[str, Meta(max_length=64)] = ""
    #: Agents on this operating system only, such as `Linux`; case does not matter.
    os: Annotated[str, Meta(max_length=64)] = ""
    #: Agents with all of these labels only.
    labels: Texts = msgspec.field(default_factory=dict)
    #: Only agents with this much free memory, in megabytes.
    memory: Annotated[int, Meta(ge=0, le=2**40)] = 0
    #: For `chained`, when the agent of a chain is gone: `stop` the run, `wait` for the agent, or
    #: `restart` its chains from their first requests on another agent.
    when_gone: WhenGone = "stop"
    #: Seconds that `wait` waits for the agent, and `restart` for another; then the run stops.
    patience: Annotated[float, Meta(ge=0, le=604_800)] = 60.0

    @property
    def traits(self) -> Strategy:
        """What the strategy does."""
        return strategy_named(self.strategy)

    @property
    def selective(self) -> bool:
        """Whether it requires more than the kind of downloader."""
        return bool(self.group or self.os or self.labels or self.memory)

    @property
    def plain(self) -> bool:
        """Any agent that offers the kind may take any request: nothing is allocated."""
        return not (self.selective or self.traits.allocates)

    @property
    def wanted(self) -> int:
        """Number of agents that a run needs to start."""
        traits = self.traits
        return self.n if traits.chooses else int(traits.allocates)

    def in_words(self) -> str:
        """A short text: `chained(2) group=eu`."""
        traits = self.traits
        detail = f"({self.n})" if traits.chooses else f"({self.key})" if traits.keyed else ""
        parts = [f"{self.strategy}{detail}"]
        parts += [f"group={self.group}"] if self.group else []
        parts += [f"os={self.os}"] if self.os else []
        parts += [f"{name}={value}" for name, value in sorted(self.labels.items())]
        parts += [f"memory>={self.memory}MB"] if self.memory else []
        return " ".join(parts)


class AskedPlacement(Placement, frozen=True, forbid_unknown_fields=True):
    """As a caller writes it: an unknown field is an error."""


class Verdict(msgspec.Struct, frozen=True):
    """One agent, and the first rule that it does not meet; `rule` is "" when it fits."""

    agent: str
    name: str
    rule: str = ""
    detail: str = ""

    @property
    def fits(self) -> bool:
        return not self.rule


class Move(msgspec.Struct, frozen=True):
    """Number of keys that would move from one agent to another."""

    source: str
    to: str
    keys: int


class Share(msgspec.Struct, frozen=True):
    """Share of the keys of one agent, before and after."""

    agent: str
    before: int
    after: int


class Preview(msgspec.Struct, frozen=True):
    """What a change of agents would do to hashed placement."""

    keys: int
    moved: int
    #: The minimum that has to move: the shares of agents that leave or join.
    ideal: float
    #: The largest share divided by the mean; 1 is perfect.
    imbalance_before: float
    imbalance_after: float
    shares: list[Share]
    moves: list[Move]


def kind_target(kind: str) -> str:
    """The target of blocks that any agent with this kind of downloader may take."""
    return ANYBODY if downloader_kind(kind).everywhere else f"{KIND}{kind}"


def run_target(number: int) -> str:
    """The target of blocks that the agents of one run may take."""
    return f"{RUN}{number}"


def own_target(agent: str) -> tuple[str, ...]:
    """An agent's id as a target; () when the id looks like another kind of target."""
    return () if agent.startswith((KIND, RUN)) else (agent,)
