"""Bounds of the fields of messages. Pure; used by every struct on the wire.

They are far above what an agent or center sends, and below what would stall the receiver or
exceed a store. A test requires one for each list, number and text. Where a center accepts less
than the bound and answers with a message, `exact` adds the rule to the API's description.
"""

from __future__ import annotations

import re
from typing import Annotated, Any

from msgspec import Meta

#: Maximum blocks held by one agent, in one message.
HELD_LIMIT = 25_000
#: Maximum entries of any other list.
LIST_LIMIT = 100_000
#: Maximum entries of a list or map that users write: labels, headers, options.
SHORT_LIST = 10_000

#: Key of the schema part that replaces the bounds in the description; it enforces nothing.
EXACT = "x-exact"
#: Characters never shown as they are: control, format, private use, separators but a space.
_UNPRINTABLE = (
    r"\u0000-\u001f\u007f-\u00a0\u00ad\u0600-\u0605\u061c\u06dd\u070f\u0890\u0891\u08e2\u1680\u180e"
    r"\u2000-\u200f\u2028-\u202f\u205f-\u206f\u3000\ue000-\uf8ff\ufeff\ufff9-\ufffb"
    "\U000110bd\U000110cd\U00013430-\U00013438\U0001bca0-\U0001bca3\U0001d173-\U0001d17a"
    "\U000e0001-\U000e007f\U000f0000-\U0010fffd"
)
PRINTABLE = f"^[^{_UNPRINTABLE}]*$"
#: A label with its value: `team=a`.
LABEL_TERM = f"^[^={_UNPRINTABLE}]+=[^{_UNPRINTABLE}]+$"
#: Lone surrogates are not characters; JSON cannot hold one, so the pattern omits them.
_FORBIDDEN = re.compile(rf"[{_UNPRINTABLE}\ud800-\udfff]")


def is_printable(text: str) -> bool:
    """Matches the pattern, on every version of Python; unassigned code points are allowed."""
    return _FORBIDDEN.search(text) is None


def exact(**rules: Any) -> dict[str, Any]:
    """JSON Schema rules for `Meta(extra_json_schema=...)`: what the center accepts."""
    return {EXACT: rules}


#: The text of a filter. Its language is in docs/reference/filters.md; the bound is above that of
#: the language, so that its own error explains a filter that is too long.
FilterText = Annotated[str, Meta(max_length=20_000, extra_json_schema=exact(format="skep-filter"))]
#: A number that every store can hold.
Number = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]
#: Any finite number.
Real = Annotated[float, Meta(ge=-1.7e308, le=1.7e308)]
#: A name, an id, a version, an address.
Name = Annotated[str, Meta(max_length=1000)]
#: The id of an agent: printable ASCII without slash and comma, not only dots and spaces.
AGENT_ID = r"^[ .]*[!-+\-0-~][ -+\-.0-~]*$"
AGENT_ID_LIMIT = 64
_AGENT_RULES = exact(minLength=1, maxLength=AGENT_ID_LIMIT, pattern=AGENT_ID)
AgentId = Annotated[str, Meta(max_length=1000, extra_json_schema=_AGENT_RULES)]
#: An agent that a caller means: the id or name of a known one, or a valid id for a new one.
AgentOrNew = Annotated[str, Meta(max_length=1000, extra_json_schema=exact(format="skep-agent"))]
#: Free text, a URI, an option.
Text = Annotated[str, Meta(max_length=2**20)]
#: Bytes, also limited by the center's `center.body_limit`.
Blob = Annotated[bytes, Meta(max_length=2**31 - 1)]
Texts = Annotated[dict[Text, Text], Meta(max_length=SHORT_LIST)]
Names = Annotated[tuple[Name, ...], Meta(max_length=SHORT_LIST)]
Numbers = Annotated[list[Number], Meta(max_length=LIST_LIMIT)]
