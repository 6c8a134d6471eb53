"""The settings `lanes.*`. Pure data."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from skep.settings.section import Section


class LaneSettings(Section, frozen=True):
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
