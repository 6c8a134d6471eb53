"""A request: one unit of download work, in its three forms.

`NewRequest` is what a caller sends, `Work` what an agent gets, `Outcome` what the agent
reports. The last two travel by the hundred and are encoded as arrays.
"""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import Meta

from skep.model.message_bounds import PRINTABLE, Name, Number, Real, Text, exact

#: Maximum length of a URI, in characters; the columns of the store have this size.
URI_LIMIT = 8000
SESSION_LIMIT = 100
DEFAULT_PRIORITY = 5
#: Maximum bytes of a request body.
BODY_LIMIT = 1024 * 1024
#: Maximum lifetime of a request, in seconds; every store can hold it.
EXPIRY_LIMIT = 100 * 365 * 86_400.0

#: What the center accepts, for the API's description; it refuses others with a message.
Uri = Annotated[
    str,
    Meta(
        extra_json_schema=exact(
            minLength=1, maxLength=URI_LIMIT, pattern=r"^[A-Za-z][A-Za-z0-9+.-]*://[^/?#\s\\]+\S*$"
        )
    ),
]
Method = Annotated[str, Meta(extra_json_schema=exact(pattern="^[A-Z]{1,20}$"))]
HeaderName = Annotated[
    str, Meta(extra_json_schema=exact(pattern=r"^[!#$%&'*+.^_`|~0-9A-Za-z-]{1,200}$"))
]
HeaderText = Annotated[str, Meta(extra_json_schema=exact(pattern=PRINTABLE))]
RequestBody = Annotated[bytes, Meta(extra_json_schema=exact(maxLength=-(-BODY_LIMIT // 3) * 4))]
AskedPriority = Annotated[int, Meta(extra_json_schema=exact(minimum=-1, maximum=5))]
Lifetime = Annotated[float, Meta(extra_json_schema=exact(exclusiveMinimum=0, maximum=EXPIRY_LIMIT))]


class NewRequest(msgspec.Struct, omit_defaults=True, forbid_unknown_fields=True):
    """One request as a caller submits it. Only `uri` is required."""

    uri: Uri
    method: Method = "GET"
    headers: dict[HeaderName, HeaderText] = msgspec.field(default_factory=dict)
    body: RequestBody = b""
    #: -1 (highest) to 5 (lowest); None = the priority of the run.
    priority: AskedPriority | None = None
    #: Returned with the result; Skep does not read it.
    meta: dict[str, Any] = msgspec.field(default_factory=dict)
    #: Requests of one run with equal fingerprints are one request; "" = computed by the center.
    fingerprint: str = ""
    #: Seconds after which the request expires; None = never.
    expires_in: Lifetime | None = None
    #: Accept it even if the run has had the same request before.
    again: bool = False
    #: Name of the session that it belongs to; "" = one of the run's sessions.
    session: Annotated[str, Meta(max_length=SESSION_LIMIT)] = ""
    #: The request on whose page it was found: in a chained run both go to one agent.
    parent: Annotated[int, Meta(ge=1, le=2**63 - 1)] | None = None


class Work(msgspec.Struct, array_like=True, omit_defaults=True):
    """One request as an agent gets it, inside the body of a block."""

    id: int
    uri: str
    method: str = "GET"
    headers: dict[str, str] = msgspec.field(default_factory=dict)
    body: bytes = b""
    meta: dict[str, Any] = msgspec.field(default_factory=dict)
    session: str = ""


class Outcome(msgspec.Struct, array_like=True, omit_defaults=True):
    """The result of one request in one attempt. `failure` is "" on success."""

    id: Number
    failure: Name = ""
    status: Number = 0
    detail: Text = ""
    elapsed_us: Number = 0
    sent: Number = 0
    received: Number = 0
    address: Text = ""
    #: Position of its WARC frames in the report's `frames`; length 0 = nothing kept.
    offset: Number = 0
    length: Number = 0
    #: Seconds that the server asked to wait (Retry-After); None = not given.
    retry_after: Real | None = None
    #: The URI that answered after redirects; "" when it is the requested one.
    final_uri: Text = ""


class Accepted(msgspec.Struct, frozen=True):
    """Number of submitted requests that are new; the others were known already."""

    new: int
    known: int


#: A request, or its URI alone.
Offered = NewRequest | str
