"""What agent and child say to each other, and the child's side of the line.

Four bytes of length, then msgpack. Inside the child nothing of Skep is there but this
folder. An agent imports the messages alone; it never believes what a child says unchecked.
"""

from __future__ import annotations

import asyncio
import os
import socket
import sys
import time
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

CHUNK = 256 * 1024
#: Most text of stderr and of an error that goes back with one answer.
TEXT = 4000
#: How the user's module is called in tracebacks.
NAME = "downloader"

Headers = list[tuple[str, str]]
#: Status, headers, bytes.
Body = tuple[int, Headers, bytes]


class TooMuch(Exception):
    """The result is larger than allowed."""


class Ask(msgspec.Struct, array_like=True, tag="ask"):
    """One request."""

    id: int
    uri: str
    method: str
    headers: dict[str, str]
    body: bytes
    meta: dict[str, Any]


class Skip(msgspec.Struct, array_like=True, tag="skip"):
    """Requests that others do now."""

    ids: list[int]


class Load(msgspec.Struct, array_like=True, tag="load"):
    """What to run and within which limits; the first message."""

    kind: str
    source: str
    version: str
    #: To become this user; 0 = stay who we are.
    uid: int
    #: Processes that are not ours cannot be seen from here.
    namespaced: bool
    time: float
    memory: int
    output: int
    scratch: int
    files: int
    #: -1 = any number.
    processes: int
    #: For generators.
    arguments: dict[str, Any] = {}


class Channel:
    """The socket to the agent."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self._buffer = bytearray()
        self._decode = msgspec.msgpack.Decoder(Ask | Skip | Load).decode
        self._encode = msgspec.msgpack.Encoder().encode
        self._owner = os.getpid()

    def send(self, *message: Any) -> None:
        if os.getpid() != self._owner:  # a copy that the code made of us by a fork
            os._exit(1)
        data = self._encode(message)
        self.sock.sendall(len(data).to_bytes(4, "big") + data)

    def receive(self, *, wait: bool) -> Iterator[Ask | Skip | Load]:
        """What has come; ends the process when the agent has gone."""
        try:
            data = self.sock.recv(CHUNK, 0 if wait else socket.MSG_DONTWAIT)
        except BlockingIOError:
            return
        if not data:
            os._exit(0)
        self._buffer += data
        yield from self._whole()

    def _whole(self) -> Iterator[Ask | Skip | Load]:
        buffer, start = self._buffer, 0
        while len(buffer) - start >= 4:  # noqa: PLR2004 - the length's own size
            end = start + 4 + int.from_bytes(buffer[start : start + 4], "big")
            if end > len(buffer):
                break
            yield self._decode(buffer[start + 4 : end])
            start = end
        del buffer[:start]


class Messages:
    """What people print and what the interpreter complains about: a file without a name."""

    def __init__(self) -> None:
        path = Path("messages")
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        path.unlink()
        os.dup2(self._fd, 1)
        os.dup2(self._fd, 2)
        for stream in (sys.stdout, sys.stderr):
            stream.reconfigure(line_buffering=True)  # type: ignore[union-attr]  # a TextIOWrapper

    def take(self) -> str:
        """The end of what was written since the last call."""
        size = os.fstat(self._fd).st_size
        if not size:
            return ""
        text = os.pread(self._fd, TEXT, max(size - TEXT, 0))
        os.ftruncate(self._fd, 0)
        return text.decode("utf-8", "replace")


def sentence(error: BaseException) -> str:
    """The error and the line of the user's code where it happened."""
    text = "".join(traceback.format_exception_only(error)).strip()
    frames = [f for f in traceback.extract_tb(error.__traceback__) if f.filename == NAME]
    place = f" (line {frames[-1].lineno}, in {frames[-1].name})" if frames else ""
    return f"{text[:TEXT]}{place}"


def class_of(error: BaseException) -> str:
    if isinstance(error, MemoryError | TooMuch):
        return "limit"
    return "timeout" if isinstance(error, asyncio.TimeoutError) else "code"


class Answers:
    """Sends what became of a request."""

    def __init__(self, line: Channel, messages: Messages) -> None:
        self._line = line
        self._messages = messages

    def fine(self, ask: Ask, body: Body, began: float) -> None:
        self._send(ask, "", "", body, began)

    def failed(self, ask: Ask, error: BaseException, began: float) -> None:
        # What is left of a full heap is of no use to the next request.
        leaving = isinstance(error, MemoryError)
        nothing: Body = (0, [], b"")
        self._send(ask, class_of(error), sentence(error), nothing, began, leaving=leaving)
        if leaving:
            os._exit(0)

    def _send(
        self,
        ask: Ask,
        failure: str,
        detail: str,
        body: Body,
        began: float,
        *,
        leaving: bool = False,
    ) -> None:
        spent = int((time.perf_counter() - began) * 1e6)
        said = self._messages.take()
        self._line.send("end", ask.id, failure, detail, said, spent, *body, leaving)
