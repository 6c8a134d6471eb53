"""Keeps answers as they came beside what they were read as, for programs that show them whole.

A struct has only the fields that this version knows; JSON for programs, and a document that is
edited and sent back, must not lose the others. Used by the command line. Of several answers to one
call the newest is kept, so that a command may ask again and again.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Any, TypeVar

import msgspec

from skep.wire import codec
from skep.wire.api.caller import Download
from skep.wire.client.transport import Answer, Request, Transport

T = TypeVar("T")
Listener = Callable[[Request, Answer, Any], None]


class ListenedTransport:
    """Another transport; `listener` is given each answer and what it was read as."""

    def __init__(self, transport: Transport, listener: Listener) -> None:
        self._transport = transport
        self._listener = listener

    async def send(self, request: Request, read: Callable[[Answer], T]) -> T:
        def heard(answer: Answer) -> T:
            found = read(answer)
            self._listener(request, answer, found)
            return found

        return await self._transport.send(request, heard)

    def stream(self, request: Request) -> AbstractAsyncContextManager[Download]:
        return self._transport.stream(request)


@dataclass(frozen=True, slots=True)
class Extended:
    """An answer, and fields that the program adds to it."""

    answer: msgspec.Struct
    more: dict[str, Any]


class AnswersAsSent:
    """`keep` is a listener; `of` gives a value with what was sent in place of its structs."""

    def __init__(self) -> None:
        self._kept: dict[tuple[str, str], tuple[bytes, Any]] = {}

    def keep(self, request: Request, answer: Answer, found: Any) -> None:
        if answer.content_type.startswith(codec.JSON):
            self._kept[request.method, request.path] = (answer.content, found)

    def of(self, value: Any) -> Any:
        """Structs that were not part of an answer stay as they are."""
        sent: dict[int, Any] = {}
        for content, found in self._kept.values():
            _pair(found, msgspec.json.decode(content), sent)
        return _replaced(value, sent)


def _pair(found: Any, plain: Any, sent: dict[int, Any]) -> None:
    """Note for each struct of an answer what it was read from."""
    if isinstance(found, msgspec.Struct) and isinstance(plain, dict):
        sent[id(found)] = plain
        for field in msgspec.structs.fields(found):
            _pair(getattr(found, field.name), plain.get(field.encode_name), sent)
    elif isinstance(found, list | tuple) and isinstance(plain, list):
        for one, other in zip(found, plain, strict=False):
            _pair(one, other, sent)
    elif isinstance(found, dict) and isinstance(plain, dict):
        for name, one in found.items():
            _pair(one, plain.get(name), sent)


def _replaced(value: Any, sent: dict[int, Any]) -> Any:
    if isinstance(value, msgspec.Struct):
        return sent.get(id(value), value)
    if isinstance(value, Extended):
        plain = msgspec.to_builtins(_replaced(value.answer, sent))
        return {**plain, **_replaced(value.more, sent)}
    if isinstance(value, list | tuple):
        return [_replaced(one, sent) for one in value]
    if isinstance(value, dict):
        return {name: _replaced(one, sent) for name, one in value.items()}
    return value
