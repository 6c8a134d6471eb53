"""The settings `egress.*`. Pure data."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from skep.settings.section import Section


class EgressSettings(Section, frozen=True):
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
