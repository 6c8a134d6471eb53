"""The settings `jobs.*`. Pure data."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from skep.settings.section import Section


class JobsSettings(Section, frozen=True):
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
