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
from skep.model.fleet.strategies import ANY, is_built_in
from skep.model.hosts.named_places import PLACE_LENGTH, PLACES_LIMIT
from skep.model.message_bounds import SHORT_LIST, Name, Texts
from skep.model.proxies import AskedExits, AskedSessions, ExitRules, Sessions
from skep.model.request import DEFAULT_PRIORITY
from skep.model.states import RunState
from skep.model.user_code import Code

#: A name that a run can have.
RUN_NAME = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$"
#: The last group refuses a newline at the end, which `$` alone would let through.
RunId = Annotated[str, Meta(pattern=rf"{RUN_NAME}(?!\n)")]


class RunSettings(msgspec.Struct, frozen=True):
    """How the requests of a run are packed, fetched and tried again.

    All of it travels, defaults too, so that people see everything; an agent of an older
    version passes over fields that it does not know.
    """

    #: Which downloader takes the requests.
    downloader: Name = HTTP.name
    #: -1 (highest) to 5 (lowest), for requests that say nothing.
    priority: Annotated[int, Meta(ge=-1, le=5)] = DEFAULT_PRIORITY
    #: How often a request that failed is tried again.
    retries: Annotated[int, Meta(ge=0, le=1000)] = 0
    #: Seconds before the first retry, doubled with each one after it, of which a random part is
    #: taken off; 0 = as the center is set (`lanes.retry_first`).
    backoff_first: Annotated[float, Meta(ge=0, le=86_400)] = 0.0
    #: Longest wait before a retry; 0 = as the center is set (`lanes.retry_cap`).
    backoff_cap: Annotated[float, Meta(ge=0, le=864_000)] = 0.0
    #: Seconds for one download, redirects and body included.
    time_limit: Annotated[float, Meta(gt=0, le=86400)] = 120.0
    #: Seconds that an agent may hold requests without an answer to any, beside what one
    #: download may take; then they are given to another. 0 = no bound of the run's own.
    answer_seconds: Annotated[float, Meta(ge=0, le=604_800)] = 900.0
    #: How often requests that nobody answered for are given to another agent before they
    #: are dead as `lost`; the center's `lanes.lease_limit` bounds it in any case.
    answer_retries: Annotated[int, Meta(ge=0, le=1000)] | None = None
    #: Requests that one round of the dispatcher takes from the job, over all its runs.
    dispatch: Annotated[int, Meta(ge=1, le=7000)] = 100
    #: What is taken first: `priority` the better priority, then the older request; `both`
    #: the better priority, and in it host by host; `host` host by host, all priorities alike.
    order: DispatchOrder = "priority"
    #: Dispatch only requests that have failed before; new ones wait.
    failed_only: bool = False
    #: Requests in one block.
    block_size: Annotated[int, Meta(ge=1, le=1000)] = 100
    #: Decoded bytes of one body; more is cut off and fails as `limit`.
    body_limit: Annotated[int, Meta(ge=0, le=2**32)] = 10 * 2**20
    #: Redirects followed for one request.
    redirects: Annotated[int, Meta(ge=0, le=50)] = 10
    #: Connections to one host from one agent.
    host_concurrency: Annotated[int, Meta(ge=1, le=1000)] = 16
    #: Seconds between two starts on one host, over all agents.
    host_delay: Annotated[float, Meta(ge=0, le=3600)] = 0.0
    #: Sent with every request of the run; a request's own headers win.
    headers: Texts = msgspec.field(default_factory=dict)
    #: Keep a cookie jar for the run on each agent.
    cookies: bool = True
    #: Ask robots.txt of every host that is not one's own (loopback, private), and obey.
    robots: bool = True
    #: Status codes that count as done although they are 400 or more.
    accept_status: Annotated[
        tuple[Annotated[int, Meta(ge=100, le=999)], ...], Meta(max_length=SHORT_LIST)
    ] = ()
    #: Proxies or redials; None = by the agent's own address.
    exits: ExitRules | None = None
    #: Identities of the run; `5` is short for five by the default rules.
    sessions: Sessions = None
    #: What the downloaders `python` and `shell` run.
    code: Code | None = None
    #: Options of the downloader `curl`, as on its command line; only safe ones are taken.
    curl: Annotated[
        tuple[Annotated[str, Meta(max_length=8192)], ...], Meta(max_length=SHORT_LIST)
    ] = ()
    #: What of each page goes back to the center; None = all of it.
    content: ContentRules | None = None
    #: Which agents may take the requests.
    placement: Placement = Placement()
    #: Loopback or private places (`host:port`) that a person named. The center adds those of
    #: start URLs and submitted URLs; agents allow them where `egress.named` is on.
    named: Annotated[
        tuple[Annotated[str, Meta(max_length=PLACE_LENGTH)], ...], Meta(max_length=PLACES_LIMIT)
    ] = ()


class AskedSettings(RunSettings, frozen=True, forbid_unknown_fields=True):
    """Settings as a caller writes them: a misspelt field is told, not dropped."""

    exits: AskedExits | None = None
    sessions: AskedSessions | Annotated[int, Meta(ge=1, le=1000)] | None = None
    placement: AskedPlacement = AskedPlacement()

    def checked(self) -> RunSettings:
        """The same as they are kept."""
        return msgspec.convert(msgspec.to_builtins(self), RunSettings)


def without_secrets(run: Run) -> Run:
    """A run as people are shown it: agents alone need to log in at proxies."""
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
    """A run as the store knows it."""

    id: str
    job: str
    state: RunState
    settings: RunSettings
    created_at: float
    #: Why it is in its state, for people; "" when there is nothing to say.
    reason: str = ""
    #: When it came into its state; 0 = when it was made.
    changed_at: float = 0.0
    #: Places that start URLs and submitted URLs named, beside those of the settings.
    named: tuple[str, ...] = ()


class NewRun(msgspec.Struct, forbid_unknown_fields=True):
    """What a caller says about a run that it opens."""

    job: str = ""
    settings: RunSettings = RunSettings()
