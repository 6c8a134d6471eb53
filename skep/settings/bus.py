"""The settings `bus.*`. Pure data."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from skep.settings.section import Section


class BusSettings(Section, frozen=True):
    """Lanes and signals between centers."""

    url: Annotated[
        str,
        Meta(description="memory:// for one center, redis://HOST:PORT/DB for several."),
    ] = "memory://"
