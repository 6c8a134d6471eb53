"""The process that runs user code. Started by an agent, mostly inside bubblewrap.

It runs with only this folder of Skep, Python and msgspec. Before it loads user code, it changes
its user and sets its limits. A request that fails must not affect the next one.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import inspect
import os
import resource
import signal
import socket
import sys
import time
import types
from collections import deque
from collections.abc import Callable
from typing import Any, NoReturn

import msgspec

from skep.downloaders.code.inside import generate
from skep.downloaders.code.inside.shell import FOUND_STATUS, Shell
from skep.downloaders.code.inside.talk import (
    NAME,
    Answers,
    Ask,
    Body,
    Channel,
    Load,
    Messages,
    Skip,
    TooMuch,
    sentence,
)

#: Seconds of a call after which new messages are checked; shorter calls do not check.
LONG_CALL = 0.005
NO_CONTENT = 204
#: Lower priority than the agent and the center.
NICE = 5
PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER, PR_SET_NO_NEW_PRIVS = 1, 36, 38
PROXY_NAMES = ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY")


def prctl(option: int, value: int) -> None:
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


def settle_down(load: Load) -> None:
    """Set the limits, then the user; neither can be undone."""
    for kind, value in (
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_AS, load.memory),
        (resource.RLIMIT_FSIZE, load.scratch),
        (resource.RLIMIT_NOFILE, load.files),
        (resource.RLIMIT_NPROC, load.processes),
    ):
        if value < 0:
            continue
        highest = resource.getrlimit(kind)[1]
        allowed = value if highest == resource.RLIM_INFINITY else min(value, highest)
        resource.setrlimit(kind, (allowed, allowed))
    if load.uid:
        os.setgroups([])
        os.setresgid(load.uid, load.uid, load.uid)
        os.setresuid(load.uid, load.uid, load.uid)
    prctl(PR_SET_NO_NEW_PRIVS, 1)
    os.umask(0o077)
    os.nice(NICE)
    if not load.namespaced:
        prctl(PR_SET_CHILD_SUBREAPER, 1)
        # Changing the user has cleared it.
        prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def open_egress_proxy(sock: socket.socket) -> None:
    """Create a listener on the private loopback and pass it to the agent, which serves it."""
    listener = socket.create_server(("127.0.0.1", 0), backlog=64)
    for name in PROXY_NAMES:
        os.environ[name] = f"http://127.0.0.1:{listener.getsockname()[1]}"
    socket.send_fds(sock, [b"d"], [listener.fileno()])
    listener.close()


def as_body(value: Any, limit: int) -> Body:
    """The result of `run` as status, headers and bytes."""
    if isinstance(value, tuple) and len(value) == 3 and isinstance(value[0], int):  # noqa: PLR2004 - documented
        status, headers, inner = value
        _, implied, body = as_body(inner, limit)
        named = [(str(name), str(text)) for name, text in dict(headers or {}).items()]
        has_type = any(name.lower() == "content-type" for name, _ in named)
        return status, named if has_type else named + implied, body
    if value is None:
        return NO_CONTENT, [], b""
    kind = "application/json"
    if isinstance(value, str):
        kind, body = "text/plain; charset=utf-8", value.encode("utf-8", "surrogateescape")
    elif isinstance(value, bytes | bytearray | memoryview):
        kind, body = "application/octet-stream", bytes(value)
    else:
        body = msgspec.json.encode(value)
    if len(body) > limit:
        raise TooMuch(f"the result has {len(body)} bytes; the limit is {limit}")
    return FOUND_STATUS, [("Content-Type", kind)], body


def load_module(load: Load) -> Callable[..., Any]:
    """Execute the module and return its `run`."""
    module = types.ModuleType(NAME)
    sys.modules[NAME] = module
    exec(compile(load.source, NAME, "exec", dont_inherit=True), module.__dict__)  # noqa: S102 - the purpose of this program
    run = getattr(module, "run", None)
    if not callable(run):
        raise TypeError("the module has no function `run(uri, ...)`")
    return run  # type: ignore[no-any-return]  # checked above


def chooser(run: Callable[..., Any]) -> Callable[[Ask], dict[str, Any]]:
    """The parts of a request that `run` has parameters for."""
    offered = ("method", "headers", "body", "meta")
    try:
        parameters = inspect.signature(run).parameters.values()
    except (TypeError, ValueError):
        return lambda _ask: {}
    takes_all = any(one.kind is one.VAR_KEYWORD for one in parameters)
    names = {one.name for one in parameters}
    wanted = [name for name in offered if takes_all or name in names]
    return lambda ask: {name: getattr(ask, name) for name in wanted}


def serve_one_by_one(line: Channel, work: Callable[[Ask], Body], answers: Answers) -> NoReturn:
    waiting: deque[Ask] = deque()
    look = True
    while True:
        if look or not waiting:
            for message in line.receive(wait=not waiting):
                if isinstance(message, Ask):
                    waiting.append(message)
                elif isinstance(message, Skip):
                    waiting = deque(one for one in waiting if one.id not in message.ids)
        if not waiting:
            continue
        ask = waiting.popleft()
        began = time.perf_counter()
        try:
            answers.fine(ask, work(ask), began)
        except BaseException as error:  # noqa: BLE001 - SystemExit of user code is a result too
            answers.failed(ask, error, began)
        look = time.perf_counter() - began > LONG_CALL


async def serve_together(
    line: Channel, run: Callable[..., Any], load: Load, answers: Answers
) -> NoReturn:
    """Run coroutines concurrently; the agent limits their number."""
    pick = chooser(run)
    loop = asyncio.get_running_loop()
    tasks: dict[int, asyncio.Task[None]] = {}

    async def work(ask: Ask) -> None:
        began = time.perf_counter()
        try:
            async with asyncio.timeout(load.time):
                value = await run(ask.uri, **pick(ask))
            answers.fine(ask, as_body(value, load.output), began)
        except BaseException as error:  # noqa: BLE001 - as above
            answers.failed(ask, error, began)
        finally:
            tasks.pop(ask.id, None)

    def came() -> None:
        for message in line.receive(wait=False):
            if isinstance(message, Ask):
                tasks[message.id] = asyncio.ensure_future(work(message))

    loop.add_reader(line.sock.fileno(), came)
    await asyncio.Event().wait()
    os._exit(0)


def serve(line: Channel, load: Load, messages: Messages) -> NoReturn:
    if load.kind.startswith(generate.PREFIX):
        generate.serve(line, load, messages)
    answers = Answers(line, messages)
    if load.kind == "shell":
        line.send("hello", False)
        serve_one_by_one(line, Shell(load).work, answers)
    try:
        run = load_module(load)
    except BaseException as error:  # noqa: BLE001 - every error is reported to the agent
        line.send("bad", sentence(error), messages.take())
        os._exit(1)
    together = inspect.iscoroutinefunction(run)
    line.send("hello", together)
    if together:
        asyncio.run(serve_together(line, run, load, answers))
    pick = chooser(run)
    serve_one_by_one(line, lambda ask: as_body(run(ask.uri, **pick(ask)), load.output), answers)


def main() -> NoReturn:
    """Arguments: the descriptor of the socket, and whether to open the egress proxy."""
    fd, network = int(sys.argv[1]), sys.argv[2] == "door"
    sock = socket.socket(fileno=fd)
    sock.set_inheritable(False)
    if network:
        open_egress_proxy(sock)
    else:
        sock.sendall(b"n")
    line = Channel(sock)
    load = next(line.receive(wait=True), None)
    while load is None:
        load = next(line.receive(wait=True), None)
    if not isinstance(load, Load):
        os._exit(1)
    settle_down(load)
    serve(line, load, Messages())
