"""One route of the API: method, path and types. Declared once, used by both sides.

Centers bind a handler and a role to it (`center/http/endpoint.py`), clients call it. It never opens
a connection and never decides who may call.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar
from urllib.parse import quote

from skep.errors import InvalidInput

G = TypeVar("G")

JSON = "application/json"
#: Seconds for a whole call, its connection included.
CALL_SECONDS = 10.0
_NAME = re.compile(r"{(\w+)(?::\w+)?}")


@dataclass(frozen=True, slots=True)
class Route(Generic[G]):
    """`gives` is the type of the answer, None for bytes of the type `media`; `takes` is the type
    of the body and `asks` that of the query, None for none."""

    #: The operation id of the API's description. Generated clients derive method names from it, so
    #: it never changes.
    id: str
    method: str
    path: str
    gives: type[G] | None = None
    takes: Any = None
    asks: type | None = None
    status: int = 200
    #: Other statuses that have an answer of the type `gives`.
    also: tuple[int, ...] = ()
    media: str = JSON
    #: Other types of the bytes, which the caller chooses by a parameter.
    other_media: tuple[str, ...] = ()
    #: Clients call it in msgpack: it carries bytes, or thousands of records.
    packed: bool = False
    #: Seconds after which a client gives up, in addition to the requested `wait`.
    seconds: float = CALL_SECONDS
    #: Examples for the API's description: of the body, of query parameters (others show their
    #: default), and of an answer that is bytes. Tests send them to a center.
    example: Any = field(default=None, compare=False)
    query_example: Mapping[str, Any] = field(default_factory=dict, compare=False)
    answer_example: Any = field(default=None, compare=False)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the path parameters, in their order."""
        return tuple(_NAME.findall(self.path))

    def at(self, *values: object) -> str:
        """The path with these values for its parameters, quoted. Raises InvalidInput for a value
        that would lead to another path."""
        left = iter([_segment(str(value)) for value in values])
        return _NAME.sub(lambda _: next(left), self.path)


def _segment(value: str) -> str:
    if value in {".", ".."}:
        raise InvalidInput(f"{value!r} is not a valid name")
    return quote(value, safe="")
