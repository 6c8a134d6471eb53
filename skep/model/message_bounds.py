"""Bounds of what a message may carry. Pure; used by every struct that crosses the wire.

They are far above what any agent or center sends, and below what would stall its receiver or
what no store can keep. A test asks for one on each list, number and text. Where a center takes
less than the bound and says so in a sentence, `exact` tells the API's description.
"""

from __future__ import annotations

import re
from typing import Annotated, Any

from msgspec import Meta

#: Most blocks in the hands of one agent, in one message.
HELD_LIMIT = 25_000
#: Most entries of any other list.
LIST_LIMIT = 100_000
#: Entries of a list or map that people write: labels, headers, options.
SHORT_LIST = 10_000

#: Key of the part of a schema that replaces what the bounds made; never decides by itself.
EXACT = "x-exact"
#: What is never shown as it is: controls, formats, private use, separators other than a space.
_UNPRINTABLE = (
    r"\u0000-\u001f\u007f-\u00a0\u00ad\u0600-\u0605\u061c\u06dd\u070f\u0890\u0891\u08e2\u1680\u180e"
    r"\u2000-\u200f\u2028-\u202f\u205f-\u206f\u3000\ue000-\uf8ff\ufeff\ufff9-\ufffb"
    "\U000110bd\U000110cd\U00013430-\U00013438\U0001bca0-\U0001bca3\U0001d173-\U0001d17a"
    "\U000e0001-\U000e007f\U000f0000-\U0010fffd"
)
PRINTABLE = f"^[^{_UNPRINTABLE}]*$"
#: Half of a letter is no letter; JSON cannot have one, so the pattern need not say it.
_FORBIDDEN = re.compile(rf"[{_UNPRINTABLE}\ud800-\udfff]")


def is_printable(text: str) -> bool:
    """As the pattern says, on every version of Python; letters yet to be invented are fine."""
    return _FORBIDDEN.search(text) is None


def exact(**rules: Any) -> dict[str, Any]:
    """Rules of JSON Schema for `Meta(extra_json_schema=...)`: what the center takes."""
    return {EXACT: rules}


#: A number that every store can keep.
Number = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]
#: Any finite number.
Real = Annotated[float, Meta(ge=-1.7e308, le=1.7e308)]
#: A name, an id, a version, an address.
Name = Annotated[str, Meta(max_length=1000)]
#: The id of an agent: printable ASCII without slash and comma, and more than dots and spaces.
AGENT_ID = r"^[ .]*[!-+\-0-~][ -+\-.0-~]*$"
AGENT_ID_LIMIT = 64
_AGENT_RULES = exact(minLength=1, maxLength=AGENT_ID_LIMIT, pattern=AGENT_ID)
AgentId = Annotated[str, Meta(max_length=1000, extra_json_schema=_AGENT_RULES)]
#: Free text, a URI, an option.
Text = Annotated[str, Meta(max_length=2**20)]
#: Bytes that the center's `center.body_limit` bounds further.
Blob = Annotated[bytes, Meta(max_length=2**31 - 1)]
Texts = Annotated[dict[Text, Text], Meta(max_length=SHORT_LIST)]
Names = Annotated[tuple[Name, ...], Meta(max_length=SHORT_LIST)]
Numbers = Annotated[list[Number], Meta(max_length=LIST_LIMIT)]
