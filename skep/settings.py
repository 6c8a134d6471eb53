"""Every setting of every process, in one place, each with its line of documentation.

Later sources win: defaults, a TOML file, the environment (`SKEP_ROOM_FIELD`), flags. A
secret may be given as `SKEP_ROOM_FIELD_FILE`, the path of a file that holds it. The
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
    port: Annotated[int, Meta(ge=0, le=65535, description="Port to bind; 0 is a free one.")] = 8420
    auth: Annotated[bool, Meta(description="Ask for a token on every route but health.")] = True
    public_url: Annotated[
        str, Meta(pattern=_URL, description="Where a proxy offers it: https://example.org/skep.")
    ] = ""
    body_limit: Annotated[
        int, Meta(gt=0, description="Largest body of one call, in bytes, after decompression.")
    ] = 64 * 2**20
    heartbeat_every: Annotated[float, Meta(gt=0, description="Seconds between two heartbeats.")] = (
        3.0
    )
    alive_after: Annotated[
        float,
        Meta(gt=0, description="An agent is dead when its last heartbeat is older, in seconds."),
    ] = 11.0
    sweep_every: Annotated[
        float, Meta(gt=0, description="Seconds between looks for dead agents and lost leases.")
    ] = 1.0
    self_check_every: Annotated[
        float,
        Meta(gt=0, description="Seconds between two steps of the self-check."),
    ] = 30.0
    roster_every: Annotated[
        float, Meta(gt=0, description="Seconds between refreshes of the view of all agents.")
    ] = 15.0
    allocate_wait: Annotated[
        float, Meta(ge=0, le=60, description="Seconds that a run waits for enough agents to start.")
    ] = 5.0
    start_wait: Annotated[
        float,
        Meta(ge=0, le=3600, description="Seconds that a start waits for store, bus and archive."),
    ] = 30.0
    vitals_kept: Annotated[float, Meta(gt=0, description="Seconds of heartbeat history.")] = 86400.0
    wrong_tokens: Annotated[
        int, Meta(ge=1, description="Wrong tokens a minute from one address before a 429.")
    ] = 30
    trusted_proxies: Annotated[
        tuple[str, ...],
        Meta(description="Proxies whose X-Forwarded-For names the caller (addresses, CIDR)."),
    ] = ()
    head_bytes: Annotated[
        int, Meta(ge=1024, le=2**20, description="Largest head of one call, in bytes.")
    ] = 32 * 1024
    headers_limit: Annotated[
        int, Meta(ge=10, le=10_000, description="Most headers of one call.")
    ] = 100
    url_bytes: Annotated[
        int, Meta(ge=256, le=2**20, description="Longest URL of one call, in bytes.")
    ] = 16 * 1024
    head_seconds: Annotated[
        float, Meta(gt=0, description="Seconds in which the head of a call must be complete.")
    ] = 10.0
    body_seconds: Annotated[
        float,
        Meta(gt=0, description="Seconds for a body, beside those that center.body_rate adds."),
    ] = 20.0
    body_rate: Annotated[
        int, Meta(ge=1, description="Each time this many bytes arrive, a body has a second more.")
    ] = 4096
    connections: Annotated[
        int,
        Meta(ge=16, description="Most connections at a time; never more than files may be open."),
    ] = 10_000
    anonymous_connections: Annotated[
        int,
        Meta(ge=1, description="Most idle connections from one address that have shown no token."),
    ] = 256


class StoreSettings(_Section, frozen=True):
    """Where facts are kept."""

    url: Annotated[
        str,
        Meta(
            description="sqlite:///PATH, postgresql://... or mysql://...; "
            "empty takes skep.db in the data folder."
        ),
    ] = ""
    readers: Annotated[int, Meta(ge=1, le=64, description="Connections for reading.")] = 2
    group_limit: Annotated[int, Meta(ge=1, description="Most writes that share one commit.")] = 256


class BusSettings(_Section, frozen=True):
    """Lanes and signals."""

    url: Annotated[
        str,
        Meta(description="memory:// for one center, redis://HOST:PORT/DB for several."),
    ] = "memory://"


class ArchiveSettings(_Section, frozen=True):
    """Where bodies are kept."""

    url: Annotated[
        str, Meta(description="A folder or s3://BUCKET/FOLDER?endpoint=URL; empty: DATA/archive.")
    ] = ""
    secret: Annotated[str, Meta(description="S3's KEY:SECRET: a file's name in DATA/secrets.")] = ""
    allow_empty_store: Annotated[
        bool, Meta(description="Start with an empty store beside segments of this center.")
    ] = False
    segment_bytes: Annotated[
        int, Meta(gt=0, description="A larger segment is closed, in bytes; S3: 64 MiB at most.")
    ] = 256 * 2**20


class LaneSettings(_Section, frozen=True):
    """Order and limits of what waits, and how leases are kept."""

    super_limit: Annotated[int, Meta(ge=1, description="Requests in lane super.")] = 1000
    high_limit: Annotated[int, Meta(ge=1, description="Requests in lane high.")] = 1000
    mid_limit: Annotated[int, Meta(ge=1, description="Requests in lane mid.")] = 2000
    low_limit: Annotated[int, Meta(ge=1, description="Requests in lane low.")] = 3000
    floor_every: Annotated[
        int,
        Meta(ge=4, description="One lease in this many starts at high, one at mid, one at low."),
    ] = 20
    dispatch_limit: Annotated[
        int, Meta(ge=1, description="Most requests that one dispatch moves into lanes.")
    ] = 7000
    dispatch_seconds: Annotated[
        float, Meta(gt=0, description="A dispatch that takes longer is given up and logged.")
    ] = 300.0
    failed_only: Annotated[
        bool, Meta(description="Dispatch only requests that have failed before, of every run.")
    ] = False
    age_seconds: Annotated[
        float,
        Meta(gt=0, description="A block that stood at a lane's tail for so long goes to its head."),
    ] = 60.0
    log_kept: Annotated[
        float, Meta(gt=0, description="Seconds that rows of the dispatch log are kept.")
    ] = 259_200.0
    lease_seconds: Annotated[
        float, Meta(gt=0, description="A lease that is not renewed for so long is taken back.")
    ] = 30.0
    lease_limit: Annotated[
        int, Meta(ge=1, description="A block lost so often is failed, its requests are dead.")
    ] = 10
    retry_first: Annotated[
        float, Meta(gt=0, description="Seconds before the first retry; doubled for each next.")
    ] = 2.0
    retry_cap: Annotated[float, Meta(gt=0, description="Longest back-off, in seconds.")] = 600.0
    reconcile_every: Annotated[
        float, Meta(gt=0, description="Seconds between comparisons of lanes and store.")
    ] = 5.0


class SiteSettings(_Section, frozen=True):
    """How hosts are treated, over all agents and runs. Loopback and private addresses are
    one's own: they get a pace and robots.txt only by a rule of their own (`skep sites`)."""

    rate: Annotated[float, Meta(ge=0, description="Requests a second to one host; 0 = any.")] = 2.0
    concurrency: Annotated[
        int, Meta(ge=1, le=1000, description="Downloads from one host at the same time.")
    ] = 4
    robots: Annotated[bool, Meta(description="Obey robots.txt.")] = True
    robots_probes: Annotated[
        int,
        Meta(
            ge=1,
            le=1000,
            description="Tries of one run at a host that does not answer, or for its robots.txt; "
            "then its requests to the host fail.",
        ),
    ] = 3
    adaptive: Annotated[bool, Meta(description="Slow down when a host is slow or refuses.")] = True
    window: Annotated[
        float, Meta(gt=0, le=600, description="Seconds of a host's work in one block.")
    ] = 10.0
    crawl_delay_cap: Annotated[
        float, Meta(ge=0, description="Longest Crawl-delay that is obeyed, in seconds.")
    ] = 300.0
    cooling_first: Annotated[
        float, Meta(gt=0, description="Seconds of rest after a refusal without Retry-After.")
    ] = 30.0
    cooling_cap: Annotated[
        float, Meta(gt=0, description="Longest rest; each refused probe doubles it, in seconds.")
    ] = 3600.0
    breaker_after: Annotated[
        int, Meta(ge=1, description="Failed downloads in a row after which a host rests.")
    ] = 5


class AgentSettings(_Section, frozen=True):
    """An agent."""

    name: Annotated[str, Meta(description="Name shown to people; empty takes the host's.")] = ""
    group: Annotated[str, Meta(description="Group for placement.")] = "default"
    processes: Annotated[int, Meta(ge=1, le=256, description="Processes, each one an agent.")] = 1
    ahead: Annotated[
        int, Meta(ge=1, le=64, description="Blocks held beyond those being downloaded.")
    ] = 2
    concurrency: Annotated[
        int, Meta(ge=1, le=4096, description="Downloads at the same time in one process.")
    ] = 64
    report_every: Annotated[
        float, Meta(gt=0, description="Longest wait of a finished result, in seconds.")
    ] = 0.5
    report_tries: Annotated[
        int,
        Meta(ge=1, le=100, description="Tries to deliver results before they go to the outbox."),
    ] = 3
    lease_wait: Annotated[
        float, Meta(ge=0, le=30, description="Seconds that a lease call may wait at the center.")
    ] = 10.0
    drain_seconds: Annotated[
        float, Meta(ge=0, description="On SIGTERM, time for running downloads to end.")
    ] = 10.0
    outbox_bytes: Annotated[
        int, Meta(ge=0, description="Disk for results while no center answers; then oldest go.")
    ] = 1024 * 2**20
    idle_close: Annotated[
        float, Meta(gt=0, description="Seconds until an unused downloader is closed.")
    ] = 60.0
    redial: Annotated[
        tuple[str, ...],
        Meta(description="Command and arguments that dial the line again; never run by a shell."),
    ] = ()
    redial_seconds: Annotated[
        float, Meta(gt=0, description="Time limit of the redial command, in seconds.")
    ] = 60.0
    redial_drain: Annotated[
        float, Meta(ge=0, description="Before a redial, time for running downloads to end.")
    ] = 30.0
    redial_every: Annotated[
        float, Meta(ge=0, description="Least seconds between two redials, whoever asks.")
    ] = 60.0
    kinds_off: Annotated[
        tuple[str, ...], Meta(description="Downloader kinds that are switched off here.")
    ] = ()
    code: Annotated[
        Literal["boxed", "always", "never"],
        Meta(description="Offer python and shell: where bubblewrap boxes them, always, never."),
    ] = "boxed"
    code_workers: Annotated[
        int, Meta(ge=1, le=256, description="Most warm processes for the code of one run.")
    ] = 4
    code_network: Annotated[
        bool, Meta(description="Let code that asks for it reach the network, by the egress rules.")
    ] = True
    code_memory: Annotated[
        int, Meta(ge=32 * 2**20, description="Most bytes of memory of one process of user code.")
    ] = 4 * 2**30
    code_scratch: Annotated[
        int, Meta(ge=2**20, description="Most bytes of the scratch folder of user code.")
    ] = 2**30
    code_processes: Annotated[
        int, Meta(ge=1, description="Most processes and threads of user code in one box.")
    ] = 256
    containers: Annotated[
        bool,
        Meta(description="Run images of applications; whoever may start one is as good as root."),
    ] = False
    container_options: Annotated[
        tuple[str, ...], Meta(description="Options of podman or docker itself, before its command.")
    ] = ()
    app_memory: Annotated[
        int, Meta(ge=0, description="Most megabytes of an application's process; 0 = any.")
    ] = 0
    app_processes: Annotated[
        int, Meta(ge=0, description="Most processes and threads of an application; 0 = any.")
    ] = 512
    app_log_bytes: Annotated[
        int, Meta(ge=2**20, description="Disk for one application's unsent log; then oldest go.")
    ] = 16 * 2**20
    packages_bytes: Annotated[
        int, Meta(ge=2**20, description="Disk for packages of applications; the unused go first.")
    ] = 2 * 2**30


class EgressSettings(_Section, frozen=True):
    """Which addresses downloads may connect to."""

    allow: Annotated[
        tuple[str, ...],
        Meta(description="Networks that are allowed although they are not public (CIDR)."),
    ] = ()
    deny: Annotated[tuple[str, ...], Meta(description="Networks that are not allowed (CIDR).")] = ()
    named: Annotated[
        bool,
        Meta(
            description="Allow a loopback or private address where a person named that host and "
            "port: a start URL, a submitted URL, the command line. `skep up` and `skep run` set it "
            "where neither list says anything."
        ),
    ] = False


class JobsSettings(_Section, frozen=True):
    """Runs of jobs, and the processes of their spiders."""

    folder: Annotated[
        str, Meta(description="Where spiders and files of jobs are; empty: the working directory.")
    ] = ""
    outputs: Annotated[
        str, Meta(description="Where sinks of jobs write their files; empty: DATA/items.")
    ] = ""
    allow_hosts: Annotated[
        tuple[str, ...],
        Meta(
            description="Hosts that are not public (name, name:port, address or network) which "
            "sinks, queries and notices of jobs may connect to."
        ),
    ] = ()
    sink_secrets: Annotated[
        tuple[str, ...],
        Meta(description="Environment variables that webhook sinks of jobs may sign with."),
    ] = ()
    runs_limit: Annotated[int, Meta(ge=0, description="Most runs that it sees to; 0 = none.")] = 64
    keep_every: Annotated[
        float, Meta(gt=0, le=60, description="Seconds between looks at a run of a job.")
    ] = 1.0
    lease_seconds: Annotated[
        float, Meta(gt=0, description="A run that its center does not claim again goes to others.")
    ] = 15.0
    restart_first: Annotated[
        float, Meta(gt=0, description="Seconds before a crashed spider starts; doubled each time.")
    ] = 1.0
    restart_cap: Annotated[
        float, Meta(gt=0, description="Longest wait before a crashed spider starts, in seconds.")
    ] = 60.0
    deliver_wait: Annotated[
        float,
        Meta(ge=0, description="Seconds that an ended run stays open for a sink that is away."),
    ] = 60.0
    deliver_first: Annotated[
        float, Meta(gt=0, description="Seconds before a failed delivery is retried; doubles.")
    ] = 1.0
    deliver_cap: Annotated[
        float, Meta(gt=0, description="Longest wait before a delivery is retried, in seconds.")
    ] = 60.0
    deliveries_limit: Annotated[
        int, Meta(ge=1, le=10_000, description="Most sinks that it delivers to at a time.")
    ] = 256
    end_seconds: Annotated[
        float, Meta(ge=0, description="A spider that is paused or stopped has so long to end.")
    ] = 10.0
    schedule_every: Annotated[
        float, Meta(gt=0, le=60, description="Seconds between looks at what has come due.")
    ] = 1.0
    fires_kept: Annotated[
        float, Meta(ge=3600, description="Seconds that the outcomes of due times are kept.")
    ] = 7_776_000.0
    package_bytes: Annotated[int, Meta(gt=0, description="Largest package.")] = 256 * 2**20
    code: Annotated[
        Literal["boxed", "always", "never"],
        Meta(
            description="Run code of generators and spiders: where bubblewrap boxes it, or always. "
            "`never` switches off code of generators."
        ),
    ] = "boxed"
    generator_processes: Annotated[
        int, Meta(ge=1, le=1000, description="Most processes of generators at a time.")
    ] = 8
    test_seconds: Annotated[
        float,
        Meta(gt=0, le=600, description="Code of generators is tried so long before a job is kept."),
    ] = 10.0


class KeepSettings(_Section, frozen=True):
    """How long records of ended runs are kept, and how many; a job may say otherwise. Bodies
    are archived bytes; logs attempts and histories; rows requests, blocks and items."""

    bodies_age: Annotated[float, Meta(ge=0, description="Seconds; 0 = for ever.")] = 0.0
    logs_age: Annotated[float, Meta(ge=0, description="Seconds; bodies go with them.")] = 0.0
    rows_age: Annotated[float, Meta(ge=0, description="Seconds; logs go with them.")] = 0.0
    bodies_bytes: Annotated[int, Meta(ge=0, description="Of the archive; 0 = any.")] = 0
    logs_bytes: Annotated[int, Meta(ge=0, description="Of logs, estimated; 0 = any.")] = 0
    rows_bytes: Annotated[int, Meta(ge=0, description="Of rows, estimated; 0 = any.")] = 0
    every: Annotated[float, Meta(gt=0, description="Seconds between two looks.")] = 600.0
    free_bytes: Annotated[int, Meta(ge=0, description="Room that the disk needs.")] = 64 * 2**20


class NoticeSettings(_Section, frozen=True):
    """Who is told when a run ends or fails, beside those whom its job names."""

    webhooks: Annotated[tuple[str, ...], Meta(description="Addresses that take a POST.")] = ()
    mails: Annotated[tuple[str, ...], Meta(description="Mail addresses.")] = ()
    on: Annotated[tuple[str, ...], Meta(description="finished, failed, cancelled.")] = ("failed",)
    secret: Annotated[str, Meta(description="Signs webhooks: a file's name in DATA/secrets.")] = ""
    mail_server: Annotated[
        str, Meta(description="smtp[+starttls]:// or smtps://USER@HOST:PORT.")
    ] = ""
    mail_secret: Annotated[str, Meta(description="Name of the secret of the mail's user.")] = ""
    mail_from: Annotated[str, Meta(description="Sender of mails.")] = "skep@localhost"


class Settings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """All rooms together."""

    data: Annotated[str, Meta(description="Folder for everything that Skep keeps.")] = "skep-data"
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
            if text or name != "data":  # an empty folder's name is none
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
