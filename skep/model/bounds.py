"""Bounds of what a message may carry. Pure; used by every struct that crosses the wire.

They are far above what any agent or center sends, and below what would stall its receiver or
what no store can keep. A test asks for one on each list, number and text.
"""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

#: Most blocks in the hands of one agent, in one message.
HELD_LIMIT = 25_000
#: Most entries of any other list.
LIST_LIMIT = 100_000
#: Entries of a list or map that people write: labels, headers, options.
SHORT_LIST = 10_000

#: A number that every store can keep.
Number = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]
#: Any finite number.
Real = Annotated[float, Meta(ge=-1.7e308, le=1.7e308)]
#: A name, an id, a version, an address.
Name = Annotated[str, Meta(max_length=1000)]
#: Free text, a URI, an option.
Text = Annotated[str, Meta(max_length=2**20)]
#: Bytes that the center's `center.body_limit` bounds further.
Blob = Annotated[bytes, Meta(max_length=2**31 - 1)]
Texts = Annotated[dict[Text, Text], Meta(max_length=SHORT_LIST)]
Names = Annotated[tuple[Name, ...], Meta(max_length=SHORT_LIST)]
Numbers = Annotated[list[Number], Meta(max_length=LIST_LIMIT)]
