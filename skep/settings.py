"""Every setting of every process, in one place, each with one line of documentation.

Later sources win: defaults, a TOML file, the environment (`SKEP_ROOM_FIELD`), flags. A
secret can be given as `SKEP_ROOM_FIELD_FILE`, the path of a file that holds it. The
reference page in `docs/reference/settings.md` is generated from the structs below.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, get_type_hints

import msgspec
from msgspec import Meta

from skep.errors import ConfigurationError
from skep.runtime.settings_sources import BadSource, from_environment, put, read_toml
from skep.runtime.value_errors import explained

PREFIX = "SKEP"
_URL = r"^(https?://[^/?#\s@]+(/[A-Za-z0-9._~-]+)*/?)?$"


class _Section(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One group of settings; a field's documentation is the `description` of its type."""


class CenterSettings(_Section, frozen=True):
    """The HTTP server of a center."""

    host: Annotated[str, Meta(description="Address to bind; anything but loopback needs auth.")] = (
        "127.0.0.1"
    )
    port: Annotated[int, Meta(ge=0, le=65535, description="Port to bind; 0 = any free one.")] = 8420
    auth: Annotated[bool, Meta(description="Require a token on every route but health.")] = True
    public_url: Annotated[
        str, Meta(pattern=_URL, description="Public URL behind a proxy: https://example.org/skep.")
    ] = ""
    body_limit: Annotated[
        int, Meta(gt=0, description="Maximum body of one call, in bytes, after decompression.")
    ] = 64 * 2**20
    heartbeat_every: Annotated[float, Meta(gt=0, description="Seconds between two heartbeats.")] = (
        3.0
    )
    alive_after: Annotated[
        float,
        Meta(gt=0, description="Seconds without a heartbeat after which an agent is dead."),
    ] = 11.0
    sweep_every: Annotated[
        float, Meta(gt=0, description="Seconds between checks for dead agents and lost leases.")
    ] = 1.0
    self_check_every: Annotated[
        float,
        Meta(gt=0, description="Seconds between two steps of the self-check."),
    ] = 30.0
    roster_every: Annotated[
        float, Meta(gt=0, description="Seconds between refreshes of the list of agents.")
    ] = 15.0
    allocate_wait: Annotated[
        float, Meta(ge=0, le=60, description="Seconds that a new run waits for enough agents.")
    ] = 5.0
    start_wait: Annotated[
        float,
        Meta(ge=0, le=3600, description="Seconds to wait for store, bus and archive at startup."),
    ] = 30.0
    vitals_kept: Annotated[float, Meta(gt=0, description="Seconds of heartbeat history.")] = 86400.0
    wrong_tokens: Annotated[
        int, Meta(ge=1, description="Wrong tokens per minute from one address before a 429.")
    ] = 30
    trusted_proxies: Annotated[
        tuple[str, ...],
        Meta(description="Proxies whose X-Forwarded-For header is trusted (addresses, CIDR)."),
    ] = ()
    head_bytes: Annotated[
        int, Meta(ge=1024, le=2**20, description="Maximum headers of one call, in bytes.")
    ] = 32 * 1024
    headers_limit: Annotated[
        int, Meta(ge=10, le=10_000, description="Maximum number of headers of one call.")
    ] = 100
    url_bytes: Annotated[
        int, Meta(ge=256, le=2**20, description="Maximum length of the URL of one call, in bytes.")
    ] = 16 * 1024
    head_seconds: Annotated[
        float, Meta(gt=0, description="Seconds until the headers of a call must be complete.")
    ] = 10.0
    body_seconds: Annotated[
        float,
        Meta(gt=0, description="Seconds for a body, plus those that center.body_rate adds."),
    ] = 20.0
    body_rate: Annotated[
        int, Meta(ge=1, description="Bytes that extend the time for a body by one second.")
    ] = 4096
    connections: Annotated[
        int,
        Meta(ge=16, description="Maximum number of connections; the open file limit can lower it."),
    ] = 10_000
    anonymous_connections: Annotated[
        int,
        Meta(ge=1, description="Maximum number of idle connections without a token per address."),
    ] = 256


class StoreSettings(_Section, frozen=True):
    """The database for jobs, runs, requests and agents."""

    url: Annotated[
        str,
        Meta(
            description="sqlite:///PATH, postgresql://... or mysql://...; "
            "empty = skep.db in the data folder."
        ),
    ] = ""
    readers: Annotated[int, Meta(ge=1, le=64, description="Number of connections for reading.")] = 2
    group_limit: Annotated[int, Meta(ge=1, description="Maximum writes in one commit.")] = 256


class BusSettings(_Section, frozen=True):
    """Lanes and signals between centers."""

    url: Annotated[
        str,
        Meta(description="memory:// for one center, redis://HOST:PORT/DB for several."),
    ] = "memory://"


class ArchiveSettings(_Section, frozen=True):
    """Storage for downloaded bodies and headers."""

    url: Annotated[
        str, Meta(description="A folder or s3://BUCKET/FOLDER?endpoint=URL; empty = DATA/archive.")
    ] = ""
    secret: Annotated[str, Meta(description="File in DATA/secrets with the S3 KEY:SECRET.")] = ""
    allow_empty_store: Annotated[
        bool, Meta(description="Allow an empty store with segments of this center.")
    ] = False
    segment_bytes: Annotated[
        int, Meta(gt=0, description="Maximum segment size, in bytes; S3: 64 MiB at most.")
    ] = 256 * 2**20


class LaneSettings(_Section, frozen=True):
    """Order and limits of waiting requests, leases and retries."""

    super_limit: Annotated[int, Meta(ge=1, description="Maximum requests in lane super.")] = 1000
    high_limit: Annotated[int, Meta(ge=1, description="Maximum requests in lane high.")] = 1000
    mid_limit: Annotated[int, Meta(ge=1, description="Maximum requests in lane mid.")] = 2000
    low_limit: Annotated[int, Meta(ge=1, description="Maximum requests in lane low.")] = 3000
    floor_every: Annotated[
        int,
        Meta(ge=4, description="Of N leases, one starts at high, one at mid and one at low."),
    ] = 20
    dispatch_limit: Annotated[
        int, Meta(ge=1, description="Maximum requests that one dispatch moves into lanes.")
    ] = 7000
    dispatch_seconds: Annotated[
        float, Meta(gt=0, description="Seconds after which a dispatch is aborted and logged.")
    ] = 300.0
    failed_only: Annotated[
        bool, Meta(description="Dispatch only requests that failed before, in all runs.")
    ] = False
    age_seconds: Annotated[
        float,
        Meta(gt=0, description="Seconds after which a block moves from a lane's tail to its head."),
    ] = 60.0
    log_kept: Annotated[
        float, Meta(gt=0, description="Seconds to keep rows of the dispatch log.")
    ] = 259_200.0
    lease_seconds: Annotated[
        float, Meta(gt=0, description="Seconds after which a lease that is not renewed expires.")
    ] = 30.0
    lease_limit: Annotated[
        int,
        Meta(
            ge=1,
            description="Number of lost leases after which a block fails and its requests "
            "become dead.",
        ),
    ] = 10
    retry_first: Annotated[
        float, Meta(gt=0, description="Seconds before the first retry; doubles with each retry.")
    ] = 2.0
    retry_cap: Annotated[float, Meta(gt=0, description="Maximum retry delay, in seconds.")] = 600.0
    reconcile_every: Annotated[
        float, Meta(gt=0, description="Seconds between comparisons of lanes and store.")
    ] = 5.0


class SiteSettings(_Section, frozen=True):
    """How hosts are treated, over all agents and runs. Loopback and private addresses have no
    rate limit and no robots.txt check unless a rule names them (`skep sites`)."""

    rate: Annotated[float, Meta(ge=0, description="Requests/second to one host; 0 = any.")] = 2.0
    concurrency: Annotated[
        int, Meta(ge=1, le=1000, description="Maximum parallel downloads from one host.")
    ] = 4
    robots: Annotated[bool, Meta(description="Obey robots.txt.")] = True
    robots_probes: Annotated[
        int,
        Meta(
            ge=1,
            le=1000,
            description="Attempts of one run to reach a host, or its robots.txt, that does not "
            "answer; then the requests of the run to this host fail.",
        ),
    ] = 3
    adaptive: Annotated[bool, Meta(description="Slow down when a host is slow or refuses.")] = True
    window: Annotated[
        float, Meta(gt=0, le=600, description="Seconds of work for one host in one block.")
    ] = 10.0
    crawl_delay_cap: Annotated[
        float, Meta(ge=0, description="Maximum Crawl-delay that is obeyed, in seconds.")
    ] = 300.0
    cooling_first: Annotated[
        float, Meta(gt=0, description="Seconds to pause a host that refuses without Retry-After.")
    ] = 30.0
    cooling_cap: Annotated[
        float, Meta(gt=0, description="Maximum pause, in seconds; each refused probe doubles it.")
    ] = 3600.0
    breaker_after: Annotated[
        int, Meta(ge=1, description="Consecutive failed downloads after which a host is paused.")
    ] = 5


class AgentSettings(_Section, frozen=True):
    """An agent."""

    name: Annotated[str, Meta(description="Display name; empty = the host name.")] = ""
    group: Annotated[str, Meta(description="Group for placement.")] = "default"
    processes: Annotated[int, Meta(ge=1, le=256, description="Number of agent processes.")] = 1
    ahead: Annotated[
        int, Meta(ge=1, le=64, description="Blocks to lease ahead of those being downloaded.")
    ] = 2
    concurrency: Annotated[
        int, Meta(ge=1, le=4096, description="Maximum parallel downloads of one process.")
    ] = 64
    report_every: Annotated[
        float, Meta(gt=0, description="Maximum seconds before a result is reported.")
    ] = 0.5
    report_tries: Annotated[
        int,
        Meta(ge=1, le=100, description="Attempts to deliver results before they go to the outbox."),
    ] = 3
    lease_wait: Annotated[
        float, Meta(ge=0, le=30, description="Seconds that a lease call may wait at the center.")
    ] = 10.0
    drain_seconds: Annotated[
        float, Meta(ge=0, description="Seconds for running downloads to end after SIGTERM.")
    ] = 10.0
    outbox_bytes: Annotated[
        int, Meta(ge=0, description="Bytes for undelivered results; oldest are dropped first.")
    ] = 1024 * 2**20
    idle_close: Annotated[
        float, Meta(gt=0, description="Seconds until an unused downloader is closed.")
    ] = 60.0
    redial: Annotated[
        tuple[str, ...],
        Meta(description="Command and arguments that reconnect the line; run without a shell."),
    ] = ()
    redial_seconds: Annotated[
        float, Meta(gt=0, description="Time limit of the redial command, in seconds.")
    ] = 60.0
    redial_drain: Annotated[
        float, Meta(ge=0, description="Seconds for running downloads to end before a redial.")
    ] = 30.0
    redial_every: Annotated[
        float, Meta(ge=0, description="Minimum seconds between two redials.")
    ] = 60.0
    kinds_off: Annotated[tuple[str, ...], Meta(description="Downloader kinds to disable.")] = ()
    code: Annotated[
        Literal["boxed", "always", "never"],
        Meta(description="Run python and shell downloaders: with bubblewrap only, always, never."),
    ] = "boxed"
    code_workers: Annotated[
        int, Meta(ge=1, le=256, description="Maximum warm processes for the code of one run.")
    ] = 4
    code_network: Annotated[
        bool, Meta(description="Allow network access for user code, under the egress rules.")
    ] = True
    code_memory: Annotated[
        int, Meta(ge=32 * 2**20, description="Maximum memory of one user code process, in bytes.")
    ] = 4 * 2**30
    code_scratch: Annotated[
        int, Meta(ge=2**20, description="Maximum scratch folder of user code, in bytes.")
    ] = 2**30
    code_processes: Annotated[
        int, Meta(ge=1, description="Maximum processes and threads in one sandbox.")
    ] = 256
    containers: Annotated[
        bool,
        Meta(description="Run application images; starting an image amounts to root access."),
    ] = False
    container_options: Annotated[
        tuple[str, ...], Meta(description="Global options of podman or docker, before the command.")
    ] = ()
    app_memory: Annotated[
        int, Meta(ge=0, description="Memory limit of an application, in MB; 0 = none.")
    ] = 0
    app_processes: Annotated[
        int, Meta(ge=0, description="Process and thread limit of an application; 0 = none.")
    ] = 512
    app_log_bytes: Annotated[
        int, Meta(ge=2**20, description="Bytes for one application's unsent log; oldest go first.")
    ] = 16 * 2**20
    packages_bytes: Annotated[
        int, Meta(ge=2**20, description="Bytes for application packages; unused go first.")
    ] = 2 * 2**30


class EgressSettings(_Section, frozen=True):
    """Which addresses downloads may connect to."""

    allow: Annotated[
        tuple[str, ...],
        Meta(description="Networks to allow although they are not public (CIDR)."),
    ] = ()
    deny: Annotated[tuple[str, ...], Meta(description="Networks to deny (CIDR).")] = ()
    named: Annotated[
        bool,
        Meta(
            description="Allow a loopback or private address if a user named that host and port: a "
            "start URL, a submitted URL, the command line. `skep up` and `skep run` enable it if "
            "both lists are empty."
        ),
    ] = False


class JobsSettings(_Section, frozen=True):
    """Job runs, and the processes of their spiders."""

    folder: Annotated[
        str, Meta(description="Folder of the jobs' spiders and files; empty = working directory.")
    ] = ""
    outputs: Annotated[
        str, Meta(description="Folder for the output files of job sinks; empty = DATA/items.")
    ] = ""
    allow_hosts: Annotated[
        tuple[str, ...],
        Meta(
            description="Hosts that are not public (name, name:port, address or network) to which "
            "the sinks, queries and notices of jobs may connect."
        ),
    ] = ()
    sink_secrets: Annotated[
        tuple[str, ...],
        Meta(description="Environment variables that job webhook sinks may use for signing."),
    ] = ()
    runs_limit: Annotated[int, Meta(ge=0, description="Maximum runs to supervise; 0 = none.")] = 64
    keep_every: Annotated[
        float, Meta(gt=0, le=60, description="Seconds between checks of a job run.")
    ] = 1.0
    lease_seconds: Annotated[
        float, Meta(gt=0, description="Seconds until an unrenewed run moves to another center.")
    ] = 15.0
    restart_first: Annotated[
        float, Meta(gt=0, description="Seconds before a crashed spider restarts; doubles.")
    ] = 1.0
    restart_cap: Annotated[
        float, Meta(gt=0, description="Maximum seconds before a crashed spider restarts.")
    ] = 60.0
    deliver_wait: Annotated[
        float,
        Meta(ge=0, description="Seconds that an ended run stays open for an unreachable sink."),
    ] = 60.0
    deliver_first: Annotated[
        float, Meta(gt=0, description="Seconds before a failed delivery is retried; doubles.")
    ] = 1.0
    deliver_cap: Annotated[
        float, Meta(gt=0, description="Maximum seconds before a delivery is retried.")
    ] = 60.0
    deliveries_limit: Annotated[
        int, Meta(ge=1, le=10_000, description="Maximum sinks served at the same time.")
    ] = 256
    end_seconds: Annotated[
        float, Meta(ge=0, description="Seconds for a paused or stopped spider to end.")
    ] = 10.0
    schedule_every: Annotated[
        float, Meta(gt=0, le=60, description="Seconds between checks for due schedules.")
    ] = 1.0
    fires_kept: Annotated[
        float, Meta(ge=3600, description="Seconds to keep the outcomes of due times.")
    ] = 7_776_000.0
    package_bytes: Annotated[int, Meta(gt=0, description="Maximum bytes of a package.")] = (
        256 * 2**20
    )
    code: Annotated[
        Literal["boxed", "always", "never"],
        Meta(
            description="Run the code of generators and spiders: with bubblewrap only, or always. "
            "`never` disables generator code."
        ),
    ] = "boxed"
    generator_processes: Annotated[
        int, Meta(ge=1, le=1000, description="Maximum parallel generator processes.")
    ] = 8
    test_seconds: Annotated[
        float,
        Meta(gt=0, le=600, description="Time limit for the trial of generator code, in seconds."),
    ] = 10.0


class KeepSettings(_Section, frozen=True):
    """How long and how many records of ended runs are kept, unless a job says otherwise. Bodies
    are archived bytes; logs are attempts and histories; rows are requests, blocks and items."""

    bodies_age: Annotated[float, Meta(ge=0, description="Seconds; 0 = no limit.")] = 0.0
    logs_age: Annotated[float, Meta(ge=0, description="Seconds; deletes bodies too.")] = 0.0
    rows_age: Annotated[float, Meta(ge=0, description="Seconds; deletes logs too.")] = 0.0
    bodies_bytes: Annotated[int, Meta(ge=0, description="Limit of the archive; 0 = none.")] = 0
    logs_bytes: Annotated[int, Meta(ge=0, description="Limit of logs, estimated; 0 = none.")] = 0
    rows_bytes: Annotated[int, Meta(ge=0, description="Limit of rows, estimated; 0 = none.")] = 0
    every: Annotated[float, Meta(gt=0, description="Seconds between two checks.")] = 600.0
    free_bytes: Annotated[int, Meta(ge=0, description="Disk space to keep free.")] = 64 * 2**20


class NoticeSettings(_Section, frozen=True):
    """Who is notified when a run ends or fails, in addition to the addresses in its job."""

    webhooks: Annotated[tuple[str, ...], Meta(description="URLs that receive a POST.")] = ()
    mails: Annotated[tuple[str, ...], Meta(description="Mail addresses.")] = ()
    on: Annotated[tuple[str, ...], Meta(description="finished, failed, cancelled.")] = ("failed",)
    secret: Annotated[str, Meta(description="File in DATA/secrets that signs webhooks.")] = ""
    mail_server: Annotated[
        str, Meta(description="smtp[+starttls]:// or smtps://USER@HOST:PORT.")
    ] = ""
    mail_secret: Annotated[str, Meta(description="File in DATA/secrets with the password.")] = ""
    mail_from: Annotated[str, Meta(description="Sender of mails.")] = "skep@localhost"


class Settings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The settings of all rooms."""

    data: Annotated[str, Meta(description="Folder for everything that Skep stores.")] = "skep-data"
    center: CenterSettings = CenterSettings()
    store: StoreSettings = StoreSettings()
    bus: BusSettings = BusSettings()
    archive: ArchiveSettings = ArchiveSettings()
    lanes: LaneSettings = LaneSettings()
    agent: AgentSettings = AgentSettings()
    egress: EgressSettings = EgressSettings()
    sites: SiteSettings = SiteSettings()
    jobs: JobsSettings = JobsSettings()
    keep: KeepSettings = KeepSettings()
    notices: NoticeSettings = NoticeSettings()

    @property
    def store_url(self) -> str:
        """Raises ConfigurationError for a data folder whose name a URL cannot hold."""
        if not self.store.url and "?" in self.data:
            raise ConfigurationError(
                f"the data folder {self.data!r} has a '?' in its name, which begins the options of"
                " a database URL; choose another folder, or set store.url"
            )
        return self.store.url or f"sqlite:///{Path(self.data) / 'skep.db'}"

    @property
    def archive_url(self) -> str:
        return self.archive.url or str(Path(self.data) / "archive")


SECTIONS = tuple(name for name in Settings.__struct_fields__ if name != "data")


def documented() -> Iterator[tuple[str, str, object, str]]:
    """(room, field, default, description) of every setting, for docs, flags and tests."""
    defaults = Settings()
    for room in SECTIONS:
        struct = getattr(defaults, room)
        hints = get_type_hints(type(struct), include_extras=True)
        for field in struct.__struct_fields__:
            yield room, field, getattr(struct, field), _description(hints[field])


def _description(hint: Any) -> str:
    metas = [m for m in getattr(hint, "__metadata__", ()) if isinstance(m, Meta)]
    return next((m.description for m in metas if m.description), "")


def load(
    file: Path | None = None,
    environment: Mapping[str, str] | None = None,
    flags: Mapping[str, Any] | None = None,
) -> Settings:
    """Merge all sources; raises ConfigurationError that names the field and the source.

    `flags` uses dotted names: `{"center.port": 8420, "data": "x"}`; None means not given.
    """
    merged: dict[str, Any] = {}
    try:
        merged = read_toml(file) if file else {}
        for name, text in from_environment(environment or {}, _variables()):
            if text or name != "data":  # an empty folder name counts as not given
                put(merged, name, _parse(text, name))
        for name, value in (flags or {}).items():
            if value is not None:
                put(merged, name, value)
        return msgspec.convert(merged, Settings, strict=False)
    except BadSource as error:
        raise ConfigurationError(str(error)) from error
    except msgspec.ValidationError as error:
        text = explained(error, merged, Settings)
        raise ConfigurationError(f"{text}. See docs/reference/settings.md.") from error


def _variables() -> dict[str, str]:
    known = {
        f"{PREFIX}_{room}_{field}".upper(): f"{room}.{field}" for room, field, *_ in documented()
    }
    return {f"{PREFIX}_DATA": "data", **known}


def _parse(text: str, name: str) -> Any:
    room, _, field = name.rpartition(".")
    default = getattr(getattr(Settings(), room), field) if room else ""
    return [part for part in text.split(",") if part] if isinstance(default, tuple) else text
