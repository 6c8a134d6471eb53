"""The settings `archive.*`. Pure data."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from skep.settings.section import Section


class ArchiveSettings(Section, frozen=True):
    """Storage for downloaded bodies and headers."""

    url: Annotated[
        str, Meta(description="A folder or s3://BUCKET/FOLDER?endpoint=URL; empty = DATA/archive.")
    ] = ""
    secret: Annotated[str, Meta(description="File in DATA/secrets with the S3 KEY:SECRET.")] = ""
    allow_empty_store: Annotated[
        bool, Meta(description="Allow an empty store with segments of this center.")
    ] = False
    segment_bytes: Annotated[
        int, Meta(gt=0, description="Maximum segment size, in bytes; S3: 64 MiB at most.")
    ] = 256 * 2**20
