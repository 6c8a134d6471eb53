"""A run: one execution of a job. Its settings travel to the agents with its blocks.

Pure data, for every process. A field is added with a default, so that older agents read it.
"""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from skep.model.content_rules import ContentRules
from skep.model.dispatch import DispatchOrder
from skep.model.downloader_kinds import HTTP
from skep.model.fleet.placement import AskedPlacement, Placement
from skep.model.fleet.strategy_traits import ANY, is_built_in
from skep.model.hosts.named_places import PLACE_LENGTH, PLACES_LIMIT
from skep.model.labels import Labels
from skep.model.message_bounds import SHORT_LIST, Name, Texts
from skep.model.proxies import AskedExits, AskedSessions, ExitRules, Sessions
from skep.model.request import DEFAULT_PRIORITY
from skep.model.states import RunState
from skep.model.user_code import Code

#: Pattern of a valid run name.
RUN_NAME = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$"
#: The last group rejects a trailing newline, which `$` alone would accept.
RunId = Annotated[str, Meta(pattern=rf"{RUN_NAME}(?!\n)")]


class RunSettings(msgspec.Struct, frozen=True):
    """How the requests of a run are packed, fetched and retried.

    All fields are sent, defaults too, so that users see everything; an agent of an older
    version ignores fields that it does not know.
    """

    #: Which downloader takes the requests.
    downloader: Name = HTTP.name
    #: -1 (highest) to 5 (lowest), for requests without a priority.
    priority: Annotated[int, Meta(ge=-1, le=5)] = DEFAULT_PRIORITY
    #: Maximum retries of a failed request.
    retries: Annotated[int, Meta(ge=0, le=1000)] = 0
    #: Seconds before the first retry, doubled with each further one and reduced by a random part;
    #: 0 = the setting of the center (`lanes.retry_first`).
    backoff_first: Annotated[float, Meta(ge=0, le=86_400)] = 0.0
    #: Maximum seconds before a retry; 0 = the setting of the center (`lanes.retry_cap`).
    backoff_cap: Annotated[float, Meta(ge=0, le=864_000)] = 0.0
    #: Seconds for one download, redirects and body included.
    time_limit: Annotated[float, Meta(gt=0, le=86400)] = 120.0
    #: Seconds that an agent may hold requests without any answer, in addition to the time of one
    #: download; then they are given to another agent. 0 = the run sets no limit.
    answer_seconds: Annotated[float, Meta(ge=0, le=604_800)] = 900.0
    #: How often unanswered requests are given to another agent before they become dead as `lost`;
    #: the center's `lanes.lease_limit` applies in any case.
    answer_retries: Annotated[int, Meta(ge=0, le=1000)] | None = None
    #: Maximum requests that one dispatch takes from the job, over all its runs.
    dispatch: Annotated[int, Meta(ge=1, le=7000)] = 100
    #: Order of requests: `priority`: by priority, then by age; `both`: by priority, then host by
    #: host; `host`: host by host, without priorities.
    order: DispatchOrder = "priority"
    #: Dispatch only requests that have failed before; new ones wait.
    failed_only: bool = False
    #: Requests in one block.
    block_size: Annotated[int, Meta(ge=1, le=1000)] = 100
    #: Maximum decoded bytes of one body; a larger one is cut off and fails as `limit`.
    body_limit: Annotated[int, Meta(ge=0, le=2**32)] = 10 * 2**20
    #: Maximum redirects of one request.
    redirects: Annotated[int, Meta(ge=0, le=50)] = 10
    #: Maximum connections to one host from one agent.
    host_concurrency: Annotated[int, Meta(ge=1, le=1000)] = 16
    #: Seconds between two starts on one host, over all agents.
    host_delay: Annotated[float, Meta(ge=0, le=3600)] = 0.0
    #: Sent with every request of the run; a request's own headers win.
    headers: Texts = msgspec.field(default_factory=dict)
    #: Keep a cookie jar for the run on each agent.
    cookies: bool = True
    #: Obey the robots.txt of every host that is not loopback or private.
    robots: bool = True
    #: Status codes that count as done although they are 400 or more.
    accept_status: Annotated[
        tuple[Annotated[int, Meta(ge=100, le=999)], ...], Meta(max_length=SHORT_LIST)
    ] = ()
    #: Proxies or redials; None = the agent's own address.
    exits: ExitRules | None = None
    #: Sessions of the run; `5` is short for five with the default rules.
    sessions: Sessions = None
    #: What the downloaders `python` and `shell` run.
    code: Code | None = None
    #: Options of the downloader `curl`, as on its command line; only safe ones are accepted.
    curl: Annotated[
        tuple[Annotated[str, Meta(max_length=8192)], ...], Meta(max_length=SHORT_LIST)
    ] = ()
    #: Which parts of each page agents send to the center; None = all.
    content: ContentRules | None = None
    #: Which agents may take the requests.
    placement: Placement = Placement()
    #: Loopback or private places (`host:port`) that a user named. The center adds those of start
    #: URLs and submitted URLs; agents allow them where `egress.named` is on.
    named: Annotated[
        tuple[Annotated[str, Meta(max_length=PLACE_LENGTH)], ...], Meta(max_length=PLACES_LIMIT)
    ] = ()


class AskedSettings(RunSettings, frozen=True, forbid_unknown_fields=True):
    """Settings as a caller writes them: an unknown field is an error."""

    exits: AskedExits | None = None
    sessions: AskedSessions | Annotated[int, Meta(ge=1, le=1000)] | None = None
    placement: AskedPlacement = AskedPlacement()

    def checked(self) -> RunSettings:
        """The settings as they are stored."""
        return msgspec.convert(msgspec.to_builtins(self), RunSettings)


def without_secrets(run: Run) -> Run:
    """A run for display: only agents need the logins of proxies."""
    if run.settings.exits is None:
        return run
    settings = msgspec.structs.replace(run.settings, exits=run.settings.exits.masked())
    return msgspec.structs.replace(run, settings=settings)


def told_to_agents(settings: RunSettings) -> RunSettings:
    """Settings as agents are told them. No agent decides by the placement, and those of earlier
    releases read the names of the strategies that come with Skep alone."""
    if is_built_in(settings.placement.strategy):
        return settings
    placement = msgspec.structs.replace(settings.placement, strategy=ANY.name)
    return msgspec.structs.replace(settings, placement=placement)


class Run(msgspec.Struct, frozen=True):
    """A run in the store."""

    id: str
    job: str
    state: RunState
    settings: RunSettings
    created_at: float
    #: Why it is in its state; "" when there is no reason to show.
    reason: str = ""
    #: When it entered its state; 0 = when it was created.
    changed_at: float = 0.0
    #: Places that start URLs and submitted URLs named, in addition to those of the settings.
    named: tuple[str, ...] = ()
    #: Those of its job, and those that it was started with.
    labels: dict[str, str] = msgspec.field(default_factory=dict)


class NewRun(msgspec.Struct, forbid_unknown_fields=True):
    """The call that opens a run."""

    job: str = ""
    settings: RunSettings = RunSettings()
    labels: Labels = msgspec.field(default_factory=dict)
