"""An agent: its registration, its heartbeats, and its state in the center.

Pure data, for agents, centers and the command line. All times are the center's clock.
"""

from __future__ import annotations

import re
from typing import Annotated

import msgspec
from msgspec import Meta

from skep.model.downloader_kinds import HTTP
from skep.model.message_bounds import PRINTABLE, SHORT_LIST, AgentId, Real, exact

#: A range that every store and every encoding can hold.
Count = Annotated[int, Meta(ge=0, le=2**63 - 1)]
#: Maximum length of a text in a registration, and maximum labels and kinds of one agent.
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
#: Why an agent gets no new work; "" = only disabled.
CORDONED, DRAINING, REVOKED = "cordoned", "draining", "revoked"


#: Suffix of the id of one of several processes of a machine.
_PROCESS = re.compile(r"\.[0-9]{1,3}$")


def machine_of(agent: str) -> str:
    """The id of the agent that a process belongs to: `attic` for `attic.1`, else its own."""
    return _PROCESS.sub("", agent)


class Registration(msgspec.Struct, frozen=True):
    """The identity of an agent. Sent at start and on every reconnect; always processed."""

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
    """Health figures of an agent. Only the newest count; old ones are kept for charts."""

    cpu: Real = 0.0
    free_memory: Count = 0
    processes: Count = 0
    active: Count = 0
    rate: Real = 0.0
    #: Results on the agent's disk that no center has taken yet.
    outbox: Count = 0
    #: Results that the agent dropped because its outbox was full.
    dropped: Count = 0
    #: Since the agent started: proxies changed, proxies paused, blocked sessions replaced, lines
    #: redialled.
    switches: Count = 0
    rested: Count = 0
    blocked: Count = 0
    redials: Count = 0
    #: Free bytes where the agent keeps its files, and the machine's load over a minute.
    free_disk: Count = 0
    load: Real = 0.0
    #: The latest problem on the agent itself, "" = none, and its age in seconds.
    trouble: Annotated[str, Meta(max_length=300)] = ""
    trouble_age: Real = 0.0
    #: Age of the oldest report on the agent's disk, in seconds; 0 = none.
    outbox_age: Real = 0.0
    #: Results of another identity found in the outbox and set aside since the agent started.
    set_aside: Count = 0


class Arrival(msgspec.Struct, frozen=True):
    """How a process registers. Every new process of an agent gets a new session; its mark is kept
    in the agent's folder, so that an old copy of the folder is recognized."""

    #: The current session of the process; 0 = it is a new process.
    session: int = 0
    mark: str = ""
    #: Earlier marks in the folder.
    known: tuple[str, ...] = ()
    #: It used a credential of its own.
    bound: bool = False
    #: Seconds after the last heartbeat for which an agent counts as alive.
    alive_after: float = 0.0


class Order(msgspec.Struct, frozen=True):
    """A command to an agent. It is sent again until it has been carried out."""

    no: int
    name: str
    made_at: float
    ended_at: float | None = None
    outcome: str = ""


class AgentView(msgspec.Struct, frozen=True):
    """An agent as the center knows it; `seen_at` is by the center's clock."""

    registration: Registration
    enabled: bool
    registered_at: float
    seen_at: float
    vitals: Vitals = Vitals()
    #: Number of its current session, counted from the first.
    session: int = 0
    #: Why it gets no work: cordoned, draining or revoked; "" = only disabled.
    aside: str = ""
    #: Labels that users set over its own; `registration` includes them.
    labels: dict[str, str | None] = msgspec.field(default_factory=dict)
    #: A command has not been acknowledged yet.
    pending: bool = False
    #: It has a credential of its own.
    bound: bool = False

    @property
    def id(self) -> str:
        return self.registration.id

    @property
    def has_beaten(self) -> bool:
        """Whether it has sent a heartbeat since it registered last."""
        return self.seen_at > self.registered_at

    @property
    def cordoned(self) -> bool:
        """It keeps its runs and gets no new ones."""
        return not self.enabled and self.aside == CORDONED

    @property
    def draining(self) -> bool:
        """It hands over all its work."""
        return not self.enabled and self.aside == DRAINING

    def alive(self, now: float, alive_after: float) -> bool:
        """Alive while the last heartbeat was received less than `alive_after` seconds ago."""
        return now - self.seen_at < alive_after
