"""Everything that center and agent say to each other. Used by both.

Version rule: a center talks to agents of its own and of the previous protocol version;
fields are only ever added, with defaults. `age` is how many seconds ago, by the sender's
monotonic clock, a message was made: a message that waited is judged by it, and no agent's
wall clock is ever believed.
"""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from skep.model.block import BlockReport, Held, Leased
from skep.model.downloader_kinds import HTTP
from skep.model.fleet.agent import Registration, Vitals
from skep.model.fleet.token import Grant
from skep.model.hosts.host import Pace
from skep.model.jobs.app import AppSpec, InstanceState
from skep.model.message_bounds import (
    HELD_LIMIT,
    LIST_LIMIT,
    AgentId,
    Blob,
    Name,
    Names,
    Number,
    Numbers,
    Real,
    Text,
    exact,
)
from skep.model.run import RunSettings

PROTOCOL = 1
OLDEST_PROTOCOL = 1
PROTOCOL_HEADER = "skep-protocol"
#: Which process of an agent calls; an earlier one than the newest is refused.
SESSION_HEADER = "skep-session"
#: Says that the caller decodes archived bodies itself; others get records with decoded bodies.
BODIES_HEADER = "skep-bodies"
ENCODED = "encoded"

#: Most blocks in one lease, and most seconds that a lease call may wait.
LEASE_BLOCKS_MAX = 64
LEASE_WAIT_MAX = 30.0
#: Most runs that one heartbeat names.
HEARTBEAT_RUNS_MAX = 500


#: The version that the sender speaks; another one is refused with a sentence.
Protocol = Annotated[
    int,
    Meta(
        ge=-(2**63),
        le=2**63 - 1,
        extra_json_schema=exact(minimum=OLDEST_PROTOCOL, maximum=PROTOCOL),
    ),
]
#: Blocks in the hands of one agent.
Holding = Annotated[list[Held], Meta(max_length=HELD_LIMIT)]


class Register(msgspec.Struct):
    """POST /node/register. Always processed, however old."""

    registration: Registration
    #: Blocks that the agent still has; whatever else was leased to it is taken back.
    holding: Holding = msgspec.field(default_factory=list)
    protocol: Protocol = PROTOCOL
    age: Real = 0.0
    #: The session that this process has already; 0 = it is new.
    session: Annotated[int, Meta(ge=0, le=2**62)] = 0
    #: A mark of this process, and those that its folder keeps of earlier ones.
    mark: Annotated[str, Meta(max_length=64)] = ""
    marks: Annotated[tuple[Annotated[str, Meta(max_length=64)], ...], Meta(max_length=8)] = ()
    #: Runs that the agent remembers.
    runs: Annotated[list[Name], Meta(max_length=2000)] = msgspec.field(default_factory=list)


class SiteRules(msgspec.Struct, frozen=True):
    """How hosts are treated, in what an agent decides by itself; a center's settings."""

    adaptive: bool = True
    breaker_after: Number = 5
    crawl_delay_cap: Real = 300.0


class Registered(msgspec.Struct):
    """The rules that the agent follows from now on."""

    heartbeat_every: Real
    lease_seconds: Real
    center: Name
    version: Name
    #: Seconds after its last beat at which the agent is taken for dead.
    alive_after: Real = 11.0
    #: Which process of the agent this one is; 0 = the center does not count them.
    session: Number = 0
    #: None leaves it to the agent's own settings.
    sites: SiteRules | None = None
    #: Of the runs that the agent remembers: those that it may forget.
    released: Annotated[list[Name], Meta(max_length=LIST_LIMIT)] = msgspec.field(
        default_factory=list
    )
    #: For what the agent keeps on its disk; it is never written there. Empty = nothing secret
    #: is kept.
    key: Annotated[bytes, Meta(max_length=64)] = b""
    #: The center decodes bodies when it reads them: they may be stored as received.
    encoded_bodies: bool = False


class Join(msgspec.Struct):
    """POST /node/join, with a one-time token. The agent has made a secret and tells its
    SHA-256; the secret is its credential from then on."""

    agent: AgentId
    digest: Annotated[bytes, Meta(min_length=32, max_length=32)]
    protocol: Protocol = PROTOCOL
    #: Only look whether it would work.
    dry: bool = False


class Joined(msgspec.Struct):
    """What the center says about its new agent."""

    agent: AgentId
    center: Name
    version: Name
    grant: Grant = Grant()


class Command(msgspec.Struct):
    """Pushed over the WebSocket and repeated in heartbeat answers: allocate, release,
    pause, resume, drain, restart, exit. `wake` asks for a lease call now, `apps` for a call
    about applications."""

    name: Name
    run: Name = ""
    detail: Annotated[str, Meta(max_length=2**26)] = ""
    #: Over 0: an order that is told again until a heartbeat says that it was obeyed.
    order: Number = 0
    #: Told back with the next heartbeat, at once, when it was obeyed; "" asks for nothing.
    ticket: Annotated[str, Meta(max_length=64)] = ""


class LeaseAsk(msgspec.Struct):
    """POST /node/lease. The answer may take `wait` seconds when there is nothing."""

    agent: AgentId
    want: Annotated[int, Meta(ge=1, le=LEASE_BLOCKS_MAX)] = 1
    wait: Annotated[float, Meta(ge=0, le=LEASE_WAIT_MAX)] = 0.0
    kinds: Names = (HTTP.name,)


class LeaseReply(msgspec.Struct):
    """Blocks in the order in which they should be done, and their runs' settings."""

    blocks: Annotated[list[Leased], Meta(max_length=LIST_LIMIT)] = msgspec.field(
        default_factory=list
    )
    runs: Annotated[dict[Name, RunSettings], Meta(max_length=LIST_LIMIT)] = msgspec.field(
        default_factory=dict
    )
    #: Hosts that have a pace; what is not named here has none.
    sites: Annotated[list[Pace], Meta(max_length=LIST_LIMIT)] = msgspec.field(default_factory=list)


class Heartbeat(msgspec.Struct):
    """POST /node/heartbeat. Renews every lease that it names."""

    agent: AgentId
    vitals: Vitals = Vitals()
    holding: Holding = msgspec.field(default_factory=list)
    #: Ask for that many blocks with the answer.
    want: Annotated[int, Meta(ge=0, le=LEASE_BLOCKS_MAX)] = 0
    age: Real = 0.0
    #: Seconds since the agent last heard a center. One that can speak and not hear gets no
    #: lease renewed: its work would rest with it for as long as that lasts.
    deaf: Real = 0.0
    #: The newest order that this process has obeyed.
    obeyed: Annotated[int, Meta(ge=0, le=2**62)] = 0
    #: Tickets of commands that were obeyed since the last beat.
    tickets: Annotated[list[Annotated[str, Meta(max_length=64)]], Meta(max_length=1000)] = (
        msgspec.field(default_factory=list)
    )
    #: Some of the runs that the agent remembers; the next heartbeat names others.
    runs: Annotated[list[Name], Meta(max_length=HEARTBEAT_RUNS_MAX)] = msgspec.field(
        default_factory=list
    )


class HeartbeatReply(msgspec.Struct):
    """Commands, and the blocks that are no longer the agent's."""

    commands: Annotated[list[Command], Meta(max_length=LIST_LIMIT)] = msgspec.field(
        default_factory=list
    )
    lost: Numbers = msgspec.field(default_factory=list)
    lease: LeaseReply | None = None
    #: False asks the agent to register again.
    known: bool = True
    #: Of the runs that the heartbeat named: those that are over, so that the agent forgets them.
    released: Annotated[list[Name], Meta(max_length=LIST_LIMIT)] = msgspec.field(
        default_factory=list
    )


class Report(msgspec.Struct):
    """POST /node/block. On disk when it is answered."""

    agent: AgentId
    blocks: Annotated[list[BlockReport], Meta(max_length=HELD_LIMIT)]


class BlockVerdict(msgspec.Struct):
    """`stored`, `duplicate`, `stale` (fenced out) or `unknown`; all but `stored` mean that
    the agent may forget the block."""

    block: Number
    verdict: Name


class ReportReply(msgspec.Struct):
    """One verdict per reported block, in order."""

    verdicts: Annotated[list[BlockVerdict], Meta(max_length=LIST_LIMIT)]


class GiveBack(msgspec.Struct):
    """POST /node/giveback. Unfinished blocks return to the lanes at once."""

    agent: AgentId
    blocks: Holding
    reason: Text = "the agent is draining"


class GivenBack(msgspec.Struct):
    """How many were taken back; the others were not this agent's any more."""

    blocks: Number


#: A number that every store can hold in its smallest column.
Small = Annotated[int, Meta(ge=0, le=2**31 - 1)]


class AppReport(msgspec.Struct, frozen=True):
    """How an instance is, on the agent that has it."""

    run: Name
    no: Small
    token: Small
    state: InstanceState
    round: Small = 0
    #: Processes of it that this agent began under this token.
    starts: Small = 0
    exit_code: Annotated[int, Meta(ge=-(2**31), le=2**31 - 1)] | None = None
    reason: Annotated[str, Meta(max_length=2000)] = ""


class AppsAsk(msgspec.Struct):
    """POST /node/apps: all instances that the agent has; told after every change, with every
    beat while it has any, and when it hears the command `apps`. On disk when answered."""

    agent: AgentId
    instances: Annotated[list[AppReport], Meta(max_length=1000)] = msgspec.field(
        default_factory=list
    )


class AppWish(msgspec.Struct, frozen=True):
    """What an agent shall do about one instance."""

    run: Name
    no: Number
    token: Number
    spec: AppSpec
    #: `running`, `paused` or `stopped`.
    state: InstanceState = InstanceState.RUNNING
    round: Number = 0


class AppsReply(msgspec.Struct):
    """Everything that is the agent's. An instance that is not here is not (or no more) its
    own: it is ended and forgotten. One that has ended is here until its end was told."""

    wanted: Annotated[list[AppWish], Meta(max_length=LIST_LIMIT)] = msgspec.field(
        default_factory=list
    )


class AppLog(msgspec.Struct):
    """POST /node/app-log. A piece of what an instance wrote; on disk when it is answered.

    Offsets count bytes since the instance was placed under this token, so that a piece that is
    sent twice is kept once. Pieces have at most APP_LOG_PIECE bytes.
    """

    agent: AgentId
    run: Name
    no: Small
    token: Small
    offset: Annotated[int, Meta(ge=0, le=2**62)]
    data: Blob
    #: Bytes before `offset` that the agent had to drop: its own room for them is bounded.
    dropped: Annotated[int, Meta(ge=0, le=2**62)] = 0


class AppLogReply(msgspec.Struct):
    """From where on the center wants to hear; everything before is on disk."""

    next: Number


#: Most bytes of log in one call.
APP_LOG_PIECE = 256 * 1024
