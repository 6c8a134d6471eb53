"""The settings `keep.*`. Pure data."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from skep.settings.section import Section


class KeepSettings(Section, frozen=True):
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
