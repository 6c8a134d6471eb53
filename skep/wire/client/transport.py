"""The contract of a transport, which carries calls to a center, and its input and output.

`http.py` calls centers over HTTP and moves on to the next one when one fails; `in_process.py`
calls the application of the same process. A transport never retries beyond that.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Protocol, TypeVar, cast

import msgspec

from skep.errors import CenterUnreachable, Malformed
from skep.wire.api.caller import Download
from skep.wire.api.route import CALL_SECONDS
from skep.wire.client.known_fields import decode_answer

T = TypeVar("T")

#: Statuses below this one are answers, the others errors.
_FIRST_ERROR = 300


@dataclass(frozen=True, slots=True)
class Request:
    """One call. `path` is relative to the address of the center and includes the query."""

    method: str
    path: str
    body: bytes | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    #: Seconds for the whole call; for a streamed answer, for each piece.
    seconds: float = CALL_SECONDS
    #: Statuses from 300 on that are still answers.
    also: tuple[int, ...] = ()

    def accepts(self, status: int) -> bool:
        """Whether an answer with this status is not an error."""
        return status < _FIRST_ERROR or status in self.also


@dataclass(frozen=True, slots=True)
class Answer:
    """A complete successful answer."""

    #: Its URL, for messages.
    url: str
    status: int
    content_type: str
    content: bytes

    def decoded(self, kind: type[T]) -> T:
        """As a message without unknown fields, or `bytes` unchanged. Raises CenterUnreachable for
        an answer that is not from a center."""
        if kind is bytes:
            return cast("T", self.content)
        try:
            return decode_answer(self.content, kind, self.content_type)
        except Malformed as error:
            raise CenterUnreachable(
                f"{self.url} did not answer like a Skep center ({error.detail});"
                f" is the address right?{_if_newer(error)}"
            ) from error


def _if_newer(error: Malformed) -> str:
    """Data with a value that this version does not know may be from a center that does."""
    if not isinstance(error.__cause__, msgspec.ValidationError):
        return ""
    return " If it is, the center may be newer than this program: update this program"


class Transport(Protocol):
    """Carries calls to a center. Raises the center's error as its class, and CenterUnreachable
    when no center answers."""

    async def send(self, request: Request, read: Callable[[Answer], T]) -> T:
        """The answer as `read` decodes it. If `read` raises CenterUnreachable, another center may
        be called."""

    def stream(self, request: Request) -> AbstractAsyncContextManager[Download]:
        """The answer piece by piece, while the context is open."""
