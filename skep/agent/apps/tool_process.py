"""Runs a program that helps to start an application: pip, or a container engine's pull.

On the agent's event loop; whoever is cancelled takes the program with him. It sees the
operator's environment, because the way to an index or a registry may be in it, and nothing
that is Skep's own.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
from collections.abc import Mapping, Sequence


async def run_tool(
    command: Sequence[str],
    seconds: float,
    environment: Mapping[str, str] | None = None,
    *,
    whole: bool = False,
) -> tuple[int, str]:
    """(exit code, its last words, or the whole output); -1 when it took too long or could not
    be started."""
    try:
        process = await asyncio.create_subprocess_exec(
            *command,
            env=tool_environment() if environment is None else environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    except OSError as error:
        return -1, str(error)
    try:
        async with asyncio.timeout(seconds):
            said, _ = await process.communicate()
    except TimeoutError:
        return -1, f"it took over {seconds:.0f} s"
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    text = said.decode(errors="replace") if whole else last_words(said)
    return process.returncode or 0, text


def tool_environment() -> dict[str, str]:
    """The operator's own, without what is Skep's."""
    return {name: value for name, value in os.environ.items() if not name.startswith("SKEP_")}


def last_words(said: bytes) -> str:
    """The end of what a program said, as one line."""
    lines = [line for line in said.decode(errors="replace").splitlines() if line.strip()]
    return " ".join(" ".join(lines[-4:]).split())[-1000:]
