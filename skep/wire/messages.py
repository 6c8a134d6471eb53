"""All messages between center and agent. Used by both.

Version rule: a center talks to agents of its own and of the previous protocol version; fields are
only added, with defaults. `age` is the age of a message in seconds, by the sender's monotonic
clock: a center judges a delayed message by it, and never trusts an agent's wall clock.
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
from skep.model.logs import LogBatch
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
#: Session of the calling agent process; an older one than the newest is refused.
SESSION_HEADER = "skep-session"
#: The caller decodes archived bodies itself; others get records with decoded bodies.
BODIES_HEADER = "skep-bodies"
ENCODED = "encoded"

#: Maximum blocks in one lease, and maximum seconds that a lease call may wait.
LEASE_BLOCKS_MAX = 64
LEASE_WAIT_MAX = 30.0
#: Maximum runs that one heartbeat names.
HEARTBEAT_RUNS_MAX = 500


#: The protocol version of the sender; an unsupported one is refused with a message.
Protocol = Annotated[
    int,
    Meta(
        ge=-(2**63),
        le=2**63 - 1,
        extra_json_schema=exact(minimum=OLDEST_PROTOCOL, maximum=PROTOCOL),
    ),
]
#: The blocks that one agent holds.
Holding = Annotated[list[Held], Meta(max_length=HELD_LIMIT)]


class Register(msgspec.Struct):
    """POST /node/register. Always processed, whatever its age."""

    registration: Registration
    #: Blocks that the agent still holds; all others that were leased to it are taken back.
    holding: Holding = msgspec.field(default_factory=list)
    protocol: Protocol = PROTOCOL
    age: Real = 0.0
    #: The current session of this process; 0 = it is new.
    session: Annotated[int, Meta(ge=0, le=2**62)] = 0
    #: The mark of this process, and the marks of earlier ones in its folder.
    mark: Annotated[str, Meta(max_length=64)] = ""
    marks: Annotated[tuple[Annotated[str, Meta(max_length=64)], ...], Meta(max_length=8)] = ()
    #: Runs that the agent remembers.
    runs: Annotated[list[Name], Meta(max_length=2000)] = msgspec.field(default_factory=list)


class SiteRules(msgspec.Struct, frozen=True):
    """The center's settings for hosts, for the decisions of an agent."""

    adaptive: bool = True
    breaker_after: Number = 5
    crawl_delay_cap: Real = 300.0


class Registered(msgspec.Struct):
    """The rules that the agent follows from now on."""

    heartbeat_every: Real
    lease_seconds: Real
    center: Name
    version: Name
    #: Seconds after its last heartbeat at which the agent counts as dead.
    alive_after: Real = 11.0
    #: The session of this process; 0 = the center does not count sessions.
    session: Number = 0
    #: None = the agent's own settings apply.
    sites: SiteRules | None = None
    #: Those of the agent's stored runs that it can delete.
    released: Annotated[list[Name], Meta(max_length=LIST_LIMIT)] = msgspec.field(
        default_factory=list
    )
    #: Key for files on the agent's disk; it is never written there. Empty = no secrets are
    #: stored.
    key: Annotated[bytes, Meta(max_length=64)] = b""
    #: The center decodes bodies when it reads them: they can be stored as received.
    encoded_bodies: bool = False
    #: The center stores log lines: agents may call /node/logs.
    takes_logs: bool = False


class Join(msgspec.Struct):
    """POST /node/join, with a one-time token. The agent has created a secret and sends its SHA-256;
    the secret is its credential from then on."""

    agent: AgentId
    digest: Annotated[bytes, Meta(min_length=32, max_length=32)]
    protocol: Protocol = PROTOCOL
    #: Only check whether it would work.
    dry: bool = False


class Joined(msgspec.Struct):
    """What the center assigns to its new agent."""

    agent: AgentId
    center: Name
    version: Name
    grant: Grant = Grant()


class Command(msgspec.Struct):
    """Pushed over the WebSocket and repeated in heartbeat answers: allocate, release, pause,
    resume, drain, restart, exit. `wake` requests a lease call now, `apps` a call about
    applications."""

    name: Name
    run: Name = ""
    detail: Annotated[str, Meta(max_length=2**26)] = ""
    #: Over 0: the command is sent again until a heartbeat acknowledges it.
    order: Number = 0
    #: Sent back with an immediate heartbeat as acknowledgement; "" = none is needed.
    ticket: Annotated[str, Meta(max_length=64)] = ""


class LeaseAsk(msgspec.Struct):
    """POST /node/lease. The answer can take `wait` seconds when there is no work."""

    agent: AgentId
    want: Annotated[int, Meta(ge=1, le=LEASE_BLOCKS_MAX)] = 1
    wait: Annotated[float, Meta(ge=0, le=LEASE_WAIT_MAX)] = 0.0
    kinds: Names = (HTTP.name,)


class LeaseReply(msgspec.Struct):
    """Blocks in the order of processing, and the settings of their runs."""

    blocks: Annotated[list[Leased], Meta(max_length=LIST_LIMIT)] = msgspec.field(
        default_factory=list
    )
    runs: Annotated[dict[Name, RunSettings], Meta(max_length=LIST_LIMIT)] = msgspec.field(
        default_factory=dict
    )
    #: Limits of hosts; hosts that are not listed have none.
    sites: Annotated[list[Pace], Meta(max_length=LIST_LIMIT)] = msgspec.field(default_factory=list)


class Heartbeat(msgspec.Struct):
    """POST /node/heartbeat. Renews every lease that it names."""

    agent: AgentId
    vitals: Vitals = Vitals()
    holding: Holding = msgspec.field(default_factory=list)
    #: Number of blocks to lease with the answer.
    want: Annotated[int, Meta(ge=0, le=LEASE_BLOCKS_MAX)] = 0
    age: Real = 0.0
    #: Seconds since the agent last got an answer of a center. An agent that can send and not
    #: receive gets no lease renewed: it could not finish its work.
    deaf: Real = 0.0
    #: The newest command that this process has acknowledged.
    obeyed: Annotated[int, Meta(ge=0, le=2**62)] = 0
    #: Tickets of commands that were executed since the last heartbeat.
    tickets: Annotated[list[Annotated[str, Meta(max_length=64)]], Meta(max_length=1000)] = (
        msgspec.field(default_factory=list)
    )
    #: Some of the agent's stored runs; the next heartbeat names others.
    runs: Annotated[list[Name], Meta(max_length=HEARTBEAT_RUNS_MAX)] = msgspec.field(
        default_factory=list
    )


class HeartbeatReply(msgspec.Struct):
    """Commands, and blocks that the agent no longer holds."""

    commands: Annotated[list[Command], Meta(max_length=LIST_LIMIT)] = msgspec.field(
        default_factory=list
    )
    lost: Numbers = msgspec.field(default_factory=list)
    lease: LeaseReply | None = None
    #: False asks the agent to register again.
    known: bool = True
    #: Those of the named runs that have ended, so that the agent deletes them.
    released: Annotated[list[Name], Meta(max_length=LIST_LIMIT)] = msgspec.field(
        default_factory=list
    )


class Report(msgspec.Struct):
    """POST /node/block. Durable when it is answered."""

    agent: AgentId
    blocks: Annotated[list[BlockReport], Meta(max_length=HELD_LIMIT)]


class BlockVerdict(msgspec.Struct):
    """`stored`, `duplicate`, `stale` (fenced out) or `unknown`; after all but `stored` the agent
    can drop the block."""

    block: Number
    verdict: Name


class ReportReply(msgspec.Struct):
    """One result per reported block, in order."""

    verdicts: Annotated[list[BlockVerdict], Meta(max_length=LIST_LIMIT)]


class GiveBack(msgspec.Struct):
    """POST /node/giveback. Unfinished blocks return to the lanes at once."""

    agent: AgentId
    blocks: Holding
    reason: Text = "the agent is draining"


class GivenBack(msgspec.Struct):
    """Number of blocks taken back; the agent no longer held the others."""

    blocks: Number


#: A number that every store can hold in its smallest column.
Small = Annotated[int, Meta(ge=0, le=2**31 - 1)]


class AppReport(msgspec.Struct, frozen=True):
    """The state of an instance on its agent."""

    run: Name
    no: Small
    token: Small
    state: InstanceState
    round: Small = 0
    #: Number of its processes that this agent started under this token.
    starts: Small = 0
    exit_code: Annotated[int, Meta(ge=-(2**31), le=2**31 - 1)] | None = None
    reason: Annotated[str, Meta(max_length=2000)] = ""


class AppsAsk(msgspec.Struct):
    """POST /node/apps: all instances of the agent; sent after every change, with every heartbeat
    while it has any, and after the command `apps`. Durable when it is answered."""

    agent: AgentId
    instances: Annotated[list[AppReport], Meta(max_length=1000)] = msgspec.field(
        default_factory=list
    )


class AppWish(msgspec.Struct, frozen=True):
    """The desired state of one instance."""

    run: Name
    no: Number
    token: Number
    spec: AppSpec
    #: `running`, `paused` or `stopped`.
    state: InstanceState = InstanceState.RUNNING
    round: Number = 0


class AppsReply(msgspec.Struct):
    """All instances of the agent. It must end and delete an instance that is not listed. An ended
    instance is listed until its end was reported."""

    wanted: Annotated[list[AppWish], Meta(max_length=LIST_LIMIT)] = msgspec.field(
        default_factory=list
    )


class AppLog(msgspec.Struct):
    """POST /node/app-log. A piece of the output of an instance; durable when it is answered.

    Offsets count bytes since the instance was placed under this token, so that a piece that is
    sent twice is stored once. Pieces have at most APP_LOG_PIECE bytes.
    """

    agent: AgentId
    run: Name
    no: Small
    token: Small
    offset: Annotated[int, Meta(ge=0, le=2**62)]
    data: Blob
    #: Bytes before `offset` that the agent dropped, because its space is limited.
    dropped: Annotated[int, Meta(ge=0, le=2**62)] = 0


class AppLogReply(msgspec.Struct):
    """Offset of the next byte that the center needs; all before it is durable."""

    next: Number


#: Maximum bytes of log in one call.
APP_LOG_PIECE = 256 * 1024


#: Maximum batches, and bytes of lines, in one call.
LOG_BATCHES, LOG_BYTES = 64, 4 * 2**20


class LogLines(msgspec.Struct):
    """POST /node/logs. Lines of the agent itself, of downloader code and of applications.

    A line is named by its source, token and offset, so that one that is sent twice is stored once.
    """

    agent: AgentId
    #: Lines of different sources.
    batches: Annotated[list[LogBatch], Meta(max_length=LOG_BATCHES)]
    #: Lines that the agent dropped since its start, because its space is limited.
    dropped: Annotated[int, Meta(ge=0, le=2**62)] = 0


class LogAnswer(msgspec.Struct):
    """What became of one batch."""

    #: Every line before this offset is stored, or known to be dropped.
    next: Number = 0
    #: Nothing was taken; send the batch again after this many seconds.
    wait: Real = 0.0
    #: Why no center takes these lines; discard them. Empty = they are taken.
    refused: Text = ""


class LogLinesReply(msgspec.Struct):
    """One answer for each batch, in their order; what they call stored is durable."""

    #: What became of each batch.
    answers: Annotated[list[LogAnswer], Meta(max_length=LOG_BATCHES)]
