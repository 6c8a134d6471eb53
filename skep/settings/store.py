"""The settings `store.*`. Pure data."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from skep.settings.section import Section


class StoreSettings(Section, frozen=True):
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
