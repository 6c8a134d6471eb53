"""The messages between agent and child, and the child's side of the channel.

A message is four bytes of length, then msgpack. Inside the child only this folder of Skep exists.
An agent imports only the messages; it never trusts what a child sends unchecked.
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
#: Maximum characters of stderr and of an error in one answer.
TEXT = 4000
#: The name of the user's module in tracebacks.
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
    """Requests that other children run now."""

    ids: list[int]


class Load(msgspec.Struct, array_like=True, tag="load"):
    """The first message: the code and its limits."""

    kind: str
    source: str
    version: str
    #: The user to become; 0 = no change.
    uid: int
    #: Whether other processes are invisible from here.
    namespaced: bool
    time: float
    memory: int
    output: int
    scratch: int
    files: int
    #: -1 = no limit.
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
        if os.getpid() != self._owner:  # a forked copy of this process
            os._exit(1)
        data = self._encode(message)
        self.sock.sendall(len(data).to_bytes(4, "big") + data)

    def receive(self, *, wait: bool) -> Iterator[Ask | Skip | Load]:
        """New messages; ends the process when the agent has closed the socket."""
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
        while len(buffer) - start >= 4:  # noqa: PLR2004 - the size of the length
            end = start + 4 + int.from_bytes(buffer[start : start + 4], "big")
            if end > len(buffer):
                break
            yield self._decode(buffer[start + 4 : end])
            start = end
        del buffer[:start]


class Messages:
    """Collects stdout and stderr of user code in an unnamed file."""

    def __init__(self) -> None:
        path = Path("messages")
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        path.unlink()
        os.dup2(self._fd, 1)
        os.dup2(self._fd, 2)
        for stream in (sys.stdout, sys.stderr):
            stream.reconfigure(line_buffering=True)  # type: ignore[union-attr]  # a TextIOWrapper

    def take(self) -> str:
        """The end of the output since the last call."""
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
    """Sends the results of requests."""

    def __init__(self, line: Channel, messages: Messages) -> None:
        self._line = line
        self._messages = messages

    def fine(self, ask: Ask, body: Body, began: float) -> None:
        self._send(ask, "", "", body, began)

    def failed(self, ask: Ask, error: BaseException, began: float) -> None:
        # The rest of a full heap is of no use for the next request.
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
