"""An attempt: one download of a request, with its result. Every attempt is kept.

Pure data. Centers write one for each outcome that an agent reports.
"""

from __future__ import annotations

import msgspec


class Attempt(msgspec.Struct, frozen=True):
    """One download of one request, with the location of its bytes in the archive."""

    request: int
    block: int
    token: int
    agent: str
    at: float
    failure: str
    status: int
    detail: str
    elapsed_us: int
    sent: int
    received: int
    address: str
    final_uri: str
    #: Archive segment; "" when no bytes were kept.
    segment: str
    offset: int
    length: int
