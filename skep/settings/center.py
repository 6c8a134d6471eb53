"""The settings `center.*`. Pure data."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from skep.settings.section import URL, Section


class CenterSettings(Section, frozen=True):
    """The HTTP server of a center."""

    host: Annotated[str, Meta(description="Address to bind; anything but loopback needs auth.")] = (
        "127.0.0.1"
    )
    port: Annotated[int, Meta(ge=0, le=65535, description="Port to bind; 0 = any free one.")] = 8420
    auth: Annotated[bool, Meta(description="Require a token on every route but health.")] = True
    public_url: Annotated[
        str, Meta(pattern=URL, description="Public URL behind a proxy: https://example.org/skep.")
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
    streams: Annotated[int, Meta(ge=0, description="Maximum number of open event streams.")] = 1000
    streams_per_address: Annotated[
        int, Meta(ge=0, description="Maximum number of open event streams from one address.")
    ] = 256
