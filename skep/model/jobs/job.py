"""A job: what to collect, how, when and for whom, as one document. Pure data.

`Job` is a valid document; `KeptJob` is a job in the store, with its revision; `JobRun` binds a
run to the job and to the key that fired it. Used by centers and the command line.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from skep.model.downloader_kinds import HTTP, KIND_TEXT
from skep.model.fleet.placement import AskedPlacement, Placement
from skep.model.fleet.strategy_traits import FIXED
from skep.model.jobs.app import AppPart
from skep.model.jobs.generator_kinds import GeneratorKind, generator_kind
from skep.model.jobs.notice import NoticeRule
from skep.model.jobs.schedule import Schedule
from skep.model.labels import Labels
from skep.model.proxies import ExitRules
from skep.model.request import DEFAULT_PRIORITY, NewRequest
from skep.model.run import RunSettings
from skep.model.user_code import SOURCE_LIMIT, Code, CodeLimits

#: Short enough for the names of its runs, which end with their time of creation.
JOB_NAME = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,45}$(?!\n)"
NAME_WORDS = "1 to 46 letters, digits, `.`, `_` and `-`, the first one a letter or digit"
JobName = Annotated[str, Meta(pattern=JOB_NAME, description=NAME_WORDS)]
#: Maximum requests and addresses in one document; use a file or a generator for more.
INLINE_LIMIT = 10_000
#: Characters of the arguments of one run, as JSON.
ARGUMENTS_LIMIT = 4000

Priority = Annotated[int, Meta(ge=-1, le=5)]
Text = Annotated[str, Meta(max_length=10_000)]
Source = Annotated[str, Meta(max_length=SOURCE_LIMIT)]


class _Part(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A part of the document: an unknown field is an error, a default is left out."""


#: A value of an argument, as a command line or JSON gives it.
Argument = str | int | float | bool


class JobSettings(RunSettings, frozen=True, forbid_unknown_fields=True):
    """How the requests of a job are dispatched and fetched: the settings of its runs, and these.
    `priority` and `downloader` are at the top of the document, `code` and `curl` under
    `downloader`."""

    #: URL of a proxy for every request; short for `exits` with one proxy.
    proxy: Annotated[str, Meta(max_length=2000)] = ""
    #: Sent as the `Cookie` header with every request.
    cookie: Annotated[str, Meta(max_length=8000)] = ""
    #: Megabytes of memory for the job's own code (spider, downloader); 0 = no limit.
    memory_limit: Annotated[int, Meta(ge=0, le=2**20)] = 0
    #: Seconds in which a URI is taken only once over all runs of the job; 0 = once per run.
    dedup: Annotated[float, Meta(ge=0, le=315_360_000)] = 0.0
    #: How often the dead requests of a run are retried after all others have ended.
    run_retries: Annotated[int, Meta(ge=0, le=1000)] = 0
    #: Seconds after which a run of the job is stopped; 0 = never.
    run_time_limit: Annotated[float, Meta(ge=0, le=31_536_000)] = 0.0


class Downloader(_Part, frozen=True):
    """The downloader of the requests: a kind, and code for some kinds."""

    kind: Annotated[str, Meta(max_length=50, description=KIND_TEXT)] = HTTP.name
    #: Python (`def run(uri, ...)`) or shell code, for the kinds `python` and `shell`.
    code: Source = ""
    #: What the code may use.
    limits: CodeLimits = CodeLimits()
    #: Allow the code to reach the network, under the egress rules of the agents.
    network: bool = False
    #: For `curl`: options as on its command line; only safe ones are accepted.
    options: Annotated[tuple[str, ...], Meta(max_length=200)] = ()


class Generator(_Part, frozen=True):
    """A source of URIs: a list, a file, a sitemap, a query or code. It runs with the job, or on
    its own cron line."""

    #: `list`, `file`, `python`, `shell`, `sitemap` or `sql`.
    kind: Literal["list", "file", "python", "shell", "sitemap", "sql"]
    #: Name for logs and users; with `cron` 1 to 16 letters, digits, `.`, `_` and `-`.
    name: Annotated[str, Meta(max_length=100)] = ""
    #: For `list`.
    uris: Annotated[tuple[str | NewRequest, ...], Meta(max_length=INLINE_LIMIT)] = ()
    #: For `file`: one URI or one JSON object per line, in the center's folder for jobs.
    path: Annotated[str, Meta(max_length=1000)] = ""
    #: For `python` (`def generate(...)` that yields) and `shell` (prints one per line).
    code: Source = ""
    #: URL of a `sitemap`, an index or a robots.txt; or of the database of `sql`. `env:NAME` takes
    #: it from a variable of the center's environment.
    url: Annotated[str, Meta(max_length=2000)] = ""
    #: For `sql`: the column `uri` (or the first), fields of a request; other columns become meta.
    query: Source = ""
    #: Its own schedule, in the time zone of the job's schedule; empty = it runs with the job.
    cron: Annotated[str, Meta(max_length=200)] = ""
    #: Arguments of the code: by name, or as SKEP_ARG_NAME and SKEP_ARGUMENTS (JSON).
    arguments: dict[str, Any] = msgspec.field(default_factory=dict)
    #: Priority of its requests; default: the priority of the job.
    priority: Priority | None = None
    #: Seconds in which a URI is taken only once over all runs of the job; 0 = see settings.
    dedup: Annotated[float, Meta(ge=0, le=315_360_000)] = 0.0
    #: Maximum invalid URIs, which are skipped; with one more the generator fails.
    bad_limit: Annotated[int, Meta(ge=0)] = 100
    #: Maximum URIs of one run; with one more the generator fails.
    limit: Annotated[int, Meta(ge=1)] = 100_000_000
    #: Limits of the code; `time` covers the whole run of it (default 3600 s), queries too.
    limits: CodeLimits = CodeLimits()
    #: Allow the code to reach the network, under the egress rules of the center.
    network: bool = False

    @property
    def traits(self) -> GeneratorKind:
        """What its kind needs and does."""
        return generator_kind(self.kind)


class SpiderPart(_Part, frozen=True):
    """A spider, run by a center in its own process."""

    #: `package.module:Class`, or `file.py` or `file.py:Class` in the center's folder for jobs.
    path: Annotated[str, Meta(min_length=1, max_length=500)]
    #: As with `skep run -a NAME=VALUE`.
    arguments: dict[str, Argument] = msgspec.field(default_factory=dict)
    #: Consecutive crashes after which the run fails.
    restarts: Annotated[int, Meta(ge=0, le=1000)] = 5


class PlacementPart(AskedPlacement, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Which agents may take the requests."""


class SinkPart(_Part, frozen=True):
    """Destination of items: the URL of a sink, and options that override its query."""

    #: URL of the sink, such as `jsonl:items.jsonl`; see the page on sinks.
    url: Annotated[str, Meta(min_length=1, max_length=4000)]
    #: Options of the sink.
    options: dict[str, Any] = msgspec.field(default_factory=dict)


class KeepPart(_Part, frozen=True):
    """How long and how many records of the job's ended runs are kept. The default is the
    setting of the center; 0 = no limit."""

    #: Seconds that archived bytes are kept.
    bodies_age: Annotated[float, Meta(ge=0)] | None = None
    #: Seconds that attempts and histories are kept; deletes bodies too.
    logs_age: Annotated[float, Meta(ge=0)] | None = None
    #: Seconds that requests, blocks and items are kept; deletes logs too.
    rows_age: Annotated[float, Meta(ge=0)] | None = None
    #: Bytes of the job's bodies; the oldest runs are deleted first.
    bodies_bytes: Annotated[int, Meta(ge=0)] = 0
    #: The same for its logs, estimated.
    logs_bytes: Annotated[int, Meta(ge=0)] = 0
    #: The same for its rows, estimated.
    rows_bytes: Annotated[int, Meta(ge=0)] = 0


class Job(_Part, frozen=True):
    """What to collect, how, when and for whom. It has requests and generators, a
    spider, or an application."""

    #: 1 to 46 letters, digits, `.`, `_` and `-`, the first one a letter or digit.
    name: JobName
    #: Description for users.
    note: Text = ""
    #: Customer or department that it collects for.
    customer: Annotated[str, Meta(max_length=200)] = ""
    #: -1 (highest) to 5 (lowest).
    priority: Priority = DEFAULT_PRIORITY
    #: A kind (`http`), or kind, code and options.
    downloader: Downloader = Downloader()
    #: How the requests are dispatched and fetched; only given fields are stored.
    settings: dict[str, Any] = msgspec.field(default_factory=dict)
    #: URIs, or objects with `uri` and any field of a request.
    requests: Annotated[tuple[str | NewRequest, ...], Meta(max_length=INLINE_LIMIT)] = ()
    #: Further sources of URIs.
    generators: Annotated[tuple[Generator, ...], Meta(max_length=100)] = ()
    #: The spider that the job runs, instead of requests and generators.
    spider: SpiderPart | None = None
    #: The application that the job runs, instead of requests, generators and a spider.
    app: AppPart | None = None
    #: When it runs automatically.
    schedule: Schedule | None = None
    #: Which agents may take its requests, or run its application.
    placement: PlacementPart = PlacementPart()
    #: Where the items of its runs go.
    sinks: Annotated[tuple[SinkPart, ...], Meta(max_length=50)] = ()
    #: How long the records of its runs are kept.
    keep: KeepPart | None = None
    #: Who is notified when a run ends or fails, in addition to the center's own list.
    notices: Annotated[tuple[NoticeRule, ...], Meta(max_length=50)] = ()
    #: A disabled job is kept and starts no run.
    enabled: bool = True
    #: Names with values, such as `team: a`, for filters; its runs have them too.
    labels: Labels = msgspec.field(default_factory=dict)

    @property
    def chosen(self) -> JobSettings:
        """The settings in full."""
        return msgspec.convert(self.settings, JobSettings)

    def run_settings(self, under: RunSettings) -> RunSettings:
        """The settings of the job over those of its spider, if any."""
        fields = {name: getattr(under, name) for name in RunSettings.__struct_fields__}
        chosen = self.chosen
        fields |= {name: getattr(chosen, name) for name in self.settings if name in fields}
        fields["headers"] = {**under.headers, **chosen.headers}
        if chosen.cookie:
            fields["headers"]["Cookie"] = chosen.cookie
        if chosen.proxy and chosen.exits is None:
            fields["exits"] = ExitRules(proxies=(chosen.proxy,))
        if self.priority != DEFAULT_PRIORITY:
            fields["priority"] = self.priority
        if self.downloader != Downloader():
            fields |= self._downloading(chosen.memory_limit)
        if self.placement != PlacementPart():
            fields["placement"] = Placement(**msgspec.structs.asdict(self.placement))
        if self.app is not None:
            fields |= self._application(self.app)
        return RunSettings(**fields)

    def _application(self, part: AppPart) -> dict[str, Any]:
        """Its agents are chosen once, one for each instance; `any` means one agent."""
        asked = Placement(**msgspec.structs.asdict(self.placement))
        n = asked.n if asked.traits.chooses else 1
        fixed = msgspec.structs.replace(asked, strategy=FIXED.name, n=n)
        return {"downloader": part.kind, "placement": fixed}

    def _downloading(self, megabytes: int) -> dict[str, Any]:
        part = self.downloader
        fields: dict[str, Any] = {"downloader": part.kind, "curl": part.options}
        if part.code:
            limits = part.limits
            if megabytes:
                limits = msgspec.structs.replace(limits, memory=megabytes * 2**20)
            fields["code"] = Code(part.code, limits, part.network)
        return fields


class KeptJob(msgspec.Struct, frozen=True):
    """A job in the store; every change is a revision."""

    job: Job
    revision: int
    author: str
    created_at: float
    changed_at: float
    deleted: bool = False


class JobRevision(msgspec.Struct, frozen=True):
    """One entry of a job's history."""

    revision: int
    at: float
    author: str
    #: created, changed, deleted or brought back.
    what: str
    job: Job


class JobRun(msgspec.Struct, frozen=True):
    """A run of a job. While it is `open`, one center at a time, the holder, supervises it."""

    run: str
    job: str
    #: Firing the same key again returns the same run.
    fire_key: str
    revision: int
    at: float
    open: bool = True
    #: Its requests are in the run.
    fed: bool = False
    holder: str = ""
    held_until: float = 0.0
    #: Processes that were started for its spider.
    starts: int = 0
    #: How it ended, or why it stopped.
    outcome: str = ""
    #: The last lines that the process of its spider wrote.
    log: str = ""
    #: Arguments of this run, which override those of the job, as a JSON object; "" = none.
    arguments: str = ""
    #: Fencing token of the holder: rises each time another center takes the run.
    lease: int = 0
    #: Labels of this run, in addition to those of the job, as a JSON object; "" = none.
    labels: str = ""

    @property
    def own_labels(self) -> dict[str, str]:
        """The labels that it was started with."""
        return msgspec.json.decode(self.labels, type=dict[str, str]) if self.labels else {}

    @property
    def chosen(self) -> dict[str, Any]:
        """The arguments of this run."""
        found: dict[str, Any] = msgspec.json.decode(self.arguments) if self.arguments else {}
        return found

    @property
    def proof(self) -> RunLease:
        """The lease that the holder's writes carry."""
        return RunLease(self.run, self.holder, self.lease)


class RunLease(msgspec.Struct, frozen=True):
    """A center's right to act for a run. Every write that carries it is refused once another
    center has taken the run, or the run is closed."""

    run: str
    holder: str
    number: int


def job_of(data: bytes) -> Job:
    """Decodes a job from the store."""
    return msgspec.json.decode(data, type=Job)


def bytes_of(job: Job) -> bytes:
    """Encodes a job: the same bytes for the same job."""
    return msgspec.json.encode(job, order="deterministic")
