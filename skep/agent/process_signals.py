"""Signals of an agent process: the first SIGTERM or SIGINT drains it, the second ends it.

Run by every process of `skep agent`. It only passes signals on: the agent itself drains and gives
blocks back.
"""

from __future__ import annotations

import asyncio
import signal

from skep.agent.app import Agent


async def run_until_signalled(agent: Agent) -> int:
    """Run an agent until it ends; returns the exit code."""
    loop = asyncio.get_running_loop()
    signals = (signal.SIGTERM, signal.SIGINT)
    seen = 0

    def signalled() -> None:
        nonlocal seen
        seen += 1
        agent.stop() if seen == 1 else agent.abort()

    for number in signals:
        loop.add_signal_handler(number, signalled)
    try:
        await agent.run()
    except asyncio.CancelledError:
        if seen <= 1:
            raise
        return 1
    finally:
        for number in signals:
            loop.remove_signal_handler(number)
    return 0
