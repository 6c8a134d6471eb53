"""Generators inside the child: their output is sent in batches.

The socket limits the rate: the center reads the next batch only when the one before is on disk,
and until then the generator blocks. A partial batch is sent after a short time, even if the next
item takes long.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import os
import subprocess  # the whole point of this file
import sys
import threading
import types
from collections.abc import AsyncIterator, Callable, Iterable
from pathlib import Path
from typing import Any, NoReturn

import msgspec

from skep.downloaders.code.inside import sitemap
from skep.downloaders.code.inside.shell import ending_of
from skep.downloaders.code.inside.talk import (
    NAME,
    Channel,
    Load,
    Messages,
    TooMuch,
    class_of,
    sentence,
)

#: Prefix of the kinds of generators.
PREFIX = "generator:"
BATCH = 1000
BATCH_BYTES = 256 * 1024
#: Maximum size of one request: its body may have a megabyte.
ITEM_BYTES = 2 * 2**20
#: Seconds after which a partial batch is sent.
FLUSH_SECONDS = 0.2
_FIELDS = ("method", "headers", "body", "priority", "meta", "fingerprint", "session")

_encode = msgspec.msgpack.Encoder().encode


class BatchWriter:
    """Collects items and sends them in batches."""

    def __init__(self, line: Channel, messages: Messages) -> None:
        self._line = line
        self._messages = messages
        self._lock = threading.Lock()
        self._items: list[Any] = []
        self._size = 0
        threading.Thread(target=self._flush_repeatedly, daemon=True).start()

    def put(self, item: Any) -> None:
        ready: Any = item if isinstance(item, str) else msgspec.Raw(_encode(plain(item)))
        size = len(ready) if isinstance(ready, str) else len(memoryview(ready))
        if size > ITEM_BYTES:
            raise TooMuch(f"one request has {size} bytes; the limit is {ITEM_BYTES}")
        with self._lock:
            self._items.append(ready)
            self._size += size
            if len(self._items) >= BATCH or self._size >= BATCH_BYTES:
                self._send()

    def over(self, failure: str, detail: str) -> None:
        with self._lock:
            self._send()
            self._line.send("over", failure, detail, self._messages.take())

    def _flush_repeatedly(self) -> None:
        tick = threading.Event()
        while not tick.wait(FLUSH_SECONDS):
            with self._lock:
                self._send()

    def _send(self) -> None:
        if self._items:
            items, self._items, self._size = self._items, [], 0
            self._line.send("batch", items, self._messages.take())


def plain(item: Any) -> dict[str, Any]:
    """A dict as it is; the request fields of any other object that has a `url` or `uri`."""
    if isinstance(item, dict):
        found = dict(item)
    else:
        uri = getattr(item, "uri", None) or getattr(item, "url", None)
        if not isinstance(uri, str):
            raise TypeError(f"a generator must yield URIs, dicts or requests, not {item!r:.200}")
        given = {name: getattr(item, name, None) for name in _FIELDS}
        found = {"uri": uri, **{name: value for name, value in given.items() if value}}
        if given["priority"] is not None:  # 0 is a valid priority
            found["priority"] = given["priority"]
    if isinstance(found.get("body"), str):
        found["body"] = found["body"].encode()
    return found


def from_python(load: Load, put: Callable[[Any], None]) -> None:
    module = types.ModuleType(NAME)
    sys.modules[NAME] = module
    exec(compile(load.source, NAME, "exec", dont_inherit=True), module.__dict__)  # noqa: S102 - the purpose of this program
    generate = getattr(module, "generate", None)
    if not callable(generate):
        raise TypeError("the module has no function `generate(...)`")
    found = generate(**load.arguments)
    if inspect.iscoroutine(found):
        found = asyncio.run(found)
    if isinstance(found, AsyncIterator):
        asyncio.run(_drain(found, put))
        return
    if isinstance(found, str | dict) or not isinstance(found, Iterable):
        raise TypeError(f"`generate` must yield or return many URIs, not {found!r:.200}")
    for item in found:
        put(item)


async def _drain(found: AsyncIterator[Any], put: Callable[[Any], None]) -> None:
    async for item in found:
        put(item)


def from_shell(load: Load, put: Callable[[Any], None]) -> None:
    """One URI or one JSON object per line."""
    script = Path("script.sh").absolute()
    script.write_text(load.source)
    mine = {f"SKEP_ARG_{name.upper()}": _word(v) for name, v in load.arguments.items()}
    env = {**os.environ, **mine, "SKEP_ARGUMENTS": json.dumps(load.arguments)}
    with subprocess.Popen(  # noqa: S603 - see above
        ["/bin/sh", str(script)], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, env=env
    ) as child:
        assert child.stdout is not None  # noqa: S101 - for the type checker
        while line := child.stdout.readline(ITEM_BYTES + 1):
            if len(line) > ITEM_BYTES:
                child.kill()
                raise TooMuch(f"the script printed a line of more than {ITEM_BYTES} bytes")
            text = line.decode("utf-8", "replace").strip()
            if text and not text.startswith("#"):
                put(text)
        code = child.wait()
    if code:
        raise RuntimeError(f"the script ended with {ending_of(code)}")


def _word(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def from_sitemap(load: Load, put: Callable[[Any], None]) -> None:
    for entry in sitemap.entries(load.arguments["body"], load.arguments["url"]):
        put(entry)


def serve(line: Channel, load: Load, messages: Messages) -> NoReturn:
    """Run one generator from start to end, then exit."""
    output_sink = BatchWriter(line, messages)
    sources = {"python": from_python, "shell": from_shell, "sitemap": from_sitemap}
    try:
        sources[load.kind.removeprefix(PREFIX)](load, output_sink.put)
    except BaseException as error:  # noqa: BLE001 - every error is reported to the center
        output_sink.over(class_of(error), sentence(error))
    else:
        output_sink.over("", "")
    os._exit(0)
