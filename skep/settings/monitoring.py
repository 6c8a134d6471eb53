"""The settings `monitoring.*`. Pure data."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from skep.settings.section import Section


class MonitoringSettings(Section, frozen=True):
    """Figures over time, alerts and failure groups."""

    enabled: Annotated[
        bool, Meta(description="Whether this center writes figures and evaluates alert rules.")
    ] = True
    runs: Annotated[
        int, Meta(ge=0, le=200, description="Busiest runs that have figures of their own.")
    ] = 20
    rows: Annotated[
        int,
        Meta(ge=1000, le=10**8, description="Maximum stored rows of figures per resolution."),
    ] = 200_000
    failure_groups: Annotated[
        int, Meta(ge=100, le=10**7, description="Maximum stored failure groups.")
    ] = 20_000
    alerts_kept: Annotated[
        float, Meta(gt=0, description="Seconds for which ended alerts are listed.")
    ] = 90 * 86_400.0
    events_end: Annotated[
        float,
        Meta(gt=0, description="Seconds after which an event that was not repeated ends."),
    ] = 86_400.0
