"""A row of the audit log: who did what to which object, from where, and the outcome. Pure.

Made by centers. Texts are masked and cut before a row exists.
"""

from __future__ import annotations

from enum import StrEnum

import msgspec

#: Maximum characters of the texts of a row.
WHO_LIMIT = 100
OBJECT_LIMIT = 200
DETAIL_LIMIT = 500
#: Maximum characters of `before` and of `after`.
STATE_LIMIT = 8_000


class AuditOutcome(StrEnum):
    """What became of a call."""

    #: It changed what it was to change.
    DONE = "done"
    #: The caller may not do it.
    REFUSED = "refused"
    #: It raised an error; parts of it may be done.
    FAILED = "failed"


class AuditRow(msgspec.Struct, frozen=True):
    """One change, or a number of refused calls."""

    #: Time of the call, of several that of the first, in seconds since the epoch.
    at: float
    #: The user; `token:NAME`, `agent:ID`, `center:schedule`; "" = no valid credential.
    who: str
    #: The operation id of the call.
    action: str
    #: Kind and name: `job:quotes`; "" = none.
    object: str = ""
    #: What became of the call: done, refused or failed.
    outcome: AuditOutcome = AuditOutcome.DONE
    #: Code and text of the error; "" = none.
    detail: str = ""
    #: The address of the caller.
    address: str = ""
    #: Kind of client: browser, cli, agent, spider, api, center.
    client: str = ""
    #: Id of the session or token that was used.
    credential: str = ""
    #: What the change replaced: JSON with masked secrets; "" = nothing.
    before: str = ""
    #: What the change wrote: JSON with masked secrets; "" = nothing.
    after: str = ""
    #: Number of calls that the row stands for.
    times: int = 1
    #: The center that took the call.
    center: str = ""
    #: Number of the row, in the order of writing; 0 = not stored yet.
    id: int = 0


class AuditPage(msgspec.Struct, frozen=True):
    """Rows, newest first. While `next` is not null there may be more below that number."""

    items: list[AuditRow]
    next: int | None = None
    #: Rows that were read to find these; 0 = an index found them.
    scanned: int = 0
