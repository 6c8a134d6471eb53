"""The settings `access.*`. Pure data."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from skep.settings.section import Section


class AccessSettings(Section, frozen=True):
    """Users, sessions and the audit log."""

    session_idle: Annotated[
        float, Meta(ge=60, description="Seconds without use after which a session ends.")
    ] = 12 * 3600.0
    session_seconds: Annotated[
        float, Meta(ge=60, description="Seconds after which a session ends in any case.")
    ] = 7 * 86400.0
    login_link_seconds: Annotated[
        float, Meta(gt=0, le=86400, description="Seconds for which a login link is valid.")
    ] = 600.0
    audit_age: Annotated[
        float, Meta(ge=0, description="Seconds for which audit rows are kept; 0 = no limit.")
    ] = 365 * 86400.0
    audit_bytes: Annotated[
        int, Meta(ge=0, description="Limit of the audit log, estimated; 0 = none.")
    ] = 1024 * 2**20
    secret_key_file: Annotated[
        str, Meta(description="File with the keys of stored secrets; '' = DATA/secret.keys.")
    ] = ""
    secret_key_command: Annotated[
        str, Meta(description="Command that prints the keys of stored secrets, instead of a file.")
    ] = ""
