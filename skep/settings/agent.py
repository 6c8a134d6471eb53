"""The settings `agent.*`. Pure data."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from skep.settings.section import Section


class AgentSettings(Section, frozen=True):
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
