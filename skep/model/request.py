"""A request: one unit of download work, in its three forms.

`NewRequest` is what a caller sends, `Work` what an agent gets, `Outcome` what the agent
reports. The last two travel by the hundred and are encoded as arrays.
"""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import Meta

from skep.model.message_bounds import PRINTABLE, Name, Number, Real, Text, exact

#: Longest URI that is taken, in characters; the store's columns are made for it.
URI_LIMIT = 8000
SESSION_LIMIT = 100
DEFAULT_PRIORITY = 5
#: Bytes that a request may send.
BODY_LIMIT = 1024 * 1024
#: Seconds that a request may be wanted; near enough for every store.
EXPIRY_LIMIT = 100 * 365 * 86_400.0

#: What the center takes, for the API's description; wrong ones are refused with a sentence.
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
    """One request as a caller hands it in. Only `uri` is needed."""

    uri: Uri
    method: Method = "GET"
    headers: dict[HeaderName, HeaderText] = msgspec.field(default_factory=dict)
    body: RequestBody = b""
    #: -1 (highest) to 5 (lowest); None takes the run's.
    priority: AskedPriority | None = None
    #: Handed back with the result, never looked at.
    meta: dict[str, Any] = msgspec.field(default_factory=dict)
    #: Requests of one run with equal fingerprints are one request; "" lets the center make it.
    fingerprint: str = ""
    #: Seconds after which nobody wants it any more; None keeps it for ever.
    expires_in: Lifetime | None = None
    #: Take it even if the run has had the same request before.
    again: bool = False
    #: The identity that it belongs to, by any name; "" takes one of the run's.
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
    """What became of one request in one attempt. `failure` is "" when it worked."""

    id: Number
    failure: Name = ""
    status: Number = 0
    detail: Text = ""
    elapsed_us: Number = 0
    sent: Number = 0
    received: Number = 0
    address: Text = ""
    #: Where its WARC frames lie inside the report's `frames`; length 0 = nothing kept.
    offset: Number = 0
    length: Number = 0
    #: Seconds that the server asked us to wait (Retry-After); None = it did not.
    retry_after: Real | None = None
    #: The URI that answered in the end, "" when it is the one that was asked for.
    final_uri: Text = ""


class Accepted(msgspec.Struct, frozen=True):
    """How many of the offered requests are new; the others were there already."""

    new: int
    known: int


#: A request, or its URI alone.
Offered = NewRequest | str
