"""An agent as it describes itself, as it beats, and as the center sees it.

Pure data, for agents, centers and the command line. Only the center's clock says when.
"""

from __future__ import annotations

import re
from typing import Annotated

import msgspec
from msgspec import Meta

from skep.model.downloader_kinds import HTTP
from skep.model.message_bounds import PRINTABLE, SHORT_LIST, AgentId, Real, exact

#: What every store and every encoding can hold.
Count = Annotated[int, Meta(ge=0, le=2**63 - 1)]
#: Longest text in what an agent says about itself, and most labels and kinds of one agent.
DESCRIPTION_LIMIT = 200
LABELS_LIMIT = 64
_SHORT = exact(maxLength=DESCRIPTION_LIMIT, pattern=PRINTABLE)
#: A text, texts and labels of a registration.
Said = Annotated[str, Meta(max_length=1000, extra_json_schema=_SHORT)]
SaidTexts = Annotated[
    tuple[Said, ...], Meta(max_length=SHORT_LIST, extra_json_schema=exact(maxItems=LABELS_LIMIT))
]
_Label = Annotated[str, Meta(max_length=2**20, extra_json_schema=_SHORT)]
SaidLabels = Annotated[
    dict[_Label, _Label],
    Meta(max_length=SHORT_LIST, extra_json_schema=exact(maxProperties=LABELS_LIMIT)),
]
#: Why a person gives an agent no new work; "" is neither, it is just disabled.
CORDONED, DRAINING, REVOKED = "cordoned", "draining", "revoked"


#: What the id of one of several processes of a machine ends with.
_PROCESS = re.compile(r"\.[0-9]{1,3}$")


def machine_of(agent: str) -> str:
    """The id of the agent that a process belongs to: `attic` for `attic.1`, else its own."""
    return _PROCESS.sub("", agent)


class Registration(msgspec.Struct, frozen=True):
    """Who an agent is. Sent at start and on every reconnect; always processed."""

    id: AgentId
    name: Said
    group: Said = "default"
    labels: SaidLabels = msgspec.field(default_factory=dict)
    address: Said = ""
    os: Said = ""
    cpus: Count = 0
    memory: Count = 0
    version: Said = ""
    #: Downloader kinds that it offers, such as `http`.
    kinds: SaidTexts = (HTTP.name,)


class Vitals(msgspec.Struct, frozen=True):
    """How an agent is. Only the newest counts; old ones are kept for charts."""

    cpu: Real = 0.0
    free_memory: Count = 0
    processes: Count = 0
    active: Count = 0
    rate: Real = 0.0
    #: Results waiting on the agent's disk for a center to take them.
    outbox: Count = 0
    #: Results that the agent had to drop because its outbox was full.
    dropped: Count = 0
    #: Since the agent began: other exits taken, proxies sent to rest, sessions that were
    #: blocked and replaced, lines dialled again.
    switches: Count = 0
    rested: Count = 0
    blocked: Count = 0
    redials: Count = 0
    #: Free bytes where the agent keeps its files, and the machine's load over a minute.
    free_disk: Count = 0
    load: Real = 0.0
    #: The newest thing that went wrong on the agent itself, "" = nothing did, and how many
    #: seconds ago.
    trouble: Annotated[str, Meta(max_length=300)] = ""
    trouble_age: Real = 0.0
    #: Seconds that the oldest report has waited on the agent's disk; 0 = none waits.
    outbox_age: Real = 0.0
    #: Results of another identity, found in the outbox and set aside, since the agent began.
    set_aside: Count = 0


class Arrival(msgspec.Struct, frozen=True):
    """How a process comes to register. Every new process of an agent gets a new session; its
    mark is kept in the agent's folder, so that an old copy of the folder can be told apart."""

    #: The session that the process has already; 0 = it is a new process.
    session: int = 0
    mark: str = ""
    #: Marks that the folder knows from before.
    known: tuple[str, ...] = ()
    #: It came with a credential that is its alone.
    bound: bool = False
    #: Seconds after its last beat for which an agent counts as alive.
    alive_after: float = 0.0


class Order(msgspec.Struct, frozen=True):
    """Something that an agent was told to do. It is told again until it has ended."""

    no: int
    name: str
    made_at: float
    ended_at: float | None = None
    outcome: str = ""


class AgentView(msgspec.Struct, frozen=True):
    """An agent as the center knows it; `seen_at` is the center's clock."""

    registration: Registration
    enabled: bool
    registered_at: float
    seen_at: float
    vitals: Vitals = Vitals()
    #: Which of its processes, counted from the first, is the agent now.
    session: int = 0
    #: Why a person gave it no work: cordoned, draining or revoked; "" when it is just disabled.
    aside: str = ""
    #: Labels that people set over its own; they are in `registration` already.
    labels: dict[str, str | None] = msgspec.field(default_factory=dict)
    #: An order waits to be obeyed.
    pending: bool = False
    #: It has a credential of its own.
    bound: bool = False

    @property
    def id(self) -> str:
        return self.registration.id

    @property
    def has_beaten(self) -> bool:
        """Since it registered last."""
        return self.seen_at > self.registered_at

    @property
    def cordoned(self) -> bool:
        """It keeps the runs that it was chosen for, and gets no others."""
        return not self.enabled and self.aside == CORDONED

    @property
    def draining(self) -> bool:
        """It hands over everything that it has."""
        return not self.enabled and self.aside == DRAINING

    def alive(self, now: float, alive_after: float) -> bool:
        """Alive while the last beat, as received, is younger than `alive_after` seconds."""
        return now - self.seen_at < alive_after
