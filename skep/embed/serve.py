"""Runs a center, and optionally an agent, until a signal.

Used by `skep up` and `skep center`. The first SIGTERM or SIGINT drains; the second ends the process
immediately: everything that was acknowledged is on disk.
"""

from __future__ import annotations

import asyncio
import logging
import signal
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

from skep import __version__
from skep.errors import SkepError
from skep.runtime.clock import SystemClock
from skep.runtime.garbage_collection import collect_less_often

if TYPE_CHECKING:
    from skep.embed.embedded import LocalCenter
    from skep.settings import Settings

log = logging.getLogger(__name__)

SIGNALS = (signal.SIGTERM, signal.SIGINT)


Show = Callable[[str], None]


def start(
    settings: Settings, *, with_agent: bool, verbose: bool, show: Show, next_step: str = ""
) -> int:
    """Run until a signal; returns the exit code. `show` prints a line; `next_step` is a command to
    try next, in another terminal."""
    import sys

    import uvloop

    from skep.runtime.logging import start_logging

    start_logging(sys.stderr, logging.DEBUG if verbose else logging.INFO)
    return uvloop.run(_hold(settings, show, next_step, with_agent=with_agent))


async def _hold(settings: Settings, show: Show, next_step: str, *, with_agent: bool) -> int:
    from skep.embed.embedded import LocalAgent, LocalCenter
    from skep.logs.handler import not_of_agent, of_agent, recorded

    clock, rng = SystemClock(), Random()  # noqa: S311 - jitter and names, no secrets
    center = LocalCenter(settings, clock, rng)
    agent = LocalAgent(center, clock, rng)
    if with_agent:
        agent.prepare()
    logs = center.center.services.logs
    with (
        recorded(logs.put, not_of_agent),
        recorded(agent.put_line, of_agent),
        until_signalled() as stopping,
    ):
        if not await _started(center, stopping):
            log.info("stopped before the center was open")
            return 0
        collect_less_often()
        try:
            _introduce(center.url, center.folder, show)
            await _show_link(center, show)
            if with_agent:
                show(f"agent    {await agent.start()} joined")
                show(f"next     {next_step}")
                await _first(stopping.wait(), agent.ended())
            if not stopping.is_set() and with_agent:
                log.info("the agent has ended by command; the center continues")
            await stopping.wait()
            log.info("draining")
        finally:
            await agent.stop()
            await center.stop()
    log.info("stopped")
    return 0


async def _started(center: LocalCenter, stopping: asyncio.Event) -> bool:
    """Whether the center is open; False when a signal arrived while it waited for a server."""
    start = asyncio.ensure_future(center.start())
    signal_task = asyncio.ensure_future(stopping.wait())
    await asyncio.wait({start, signal_task}, return_when=asyncio.FIRST_COMPLETED)
    signal_task.cancel()
    if not start.done():
        start.cancel()
        await asyncio.gather(start, return_exceptions=True)
        return False
    start.result()
    return True


async def _first(*waits: Coroutine[Any, Any, object]) -> None:
    """Returns with the first that ends, or raises its error; the others are cancelled."""
    tasks = [asyncio.ensure_future(wait) for wait in waits]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
    finally:
        for task in tasks:
            task.cancel()


def _introduce(url: str, folder: Path, show: Show) -> None:
    show(f"Skep {__version__}")
    show(f"address  {url}")
    show(f"data     {folder}")
    show(f"token    {folder / 'admin.token'}")


async def _show_link(center: LocalCenter, show: Show) -> None:
    """Print a one-time login link. A center without one starts, too: users can be managed with the
    token."""
    try:
        show(f"login    {await center.login_link()}")
    except SkepError as error:
        log.warning("cannot make a login link: %s", error.detail)


@contextmanager
def until_signalled() -> Iterator[asyncio.Event]:
    """An event that the first signal sets; the second signal has its default effect."""
    loop = asyncio.get_running_loop()
    stopping = asyncio.Event()

    def let_go() -> None:
        for number in SIGNALS:
            loop.remove_signal_handler(number)

    def signalled() -> None:
        stopping.set()
        let_go()

    for number in SIGNALS:
        loop.add_signal_handler(number, signalled)
    try:
        yield stopping
    finally:
        let_go()
