"""Runs a program that helps to start an application: pip, or a container engine's pull.

Runs on the agent's event loop; cancelling it ends the program. The program gets the operator's
environment, because it can contain the address of an index or a registry, without variables of
Skep.
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
    """(exit code, last lines or the whole output); -1 when it timed out or could not be
    started."""
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
        return -1, f"timed out after {seconds:.0f} s"
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    text = said.decode(errors="replace") if whole else last_words(said)
    return process.returncode or 0, text


def tool_environment() -> dict[str, str]:
    """The operator's environment, without variables of Skep."""
    return {name: value for name, value in os.environ.items() if not name.startswith("SKEP_")}


def last_words(said: bytes) -> str:
    """The end of a program's output, as one line."""
    lines = [line for line in said.decode(errors="replace").splitlines() if line.strip()]
    return " ".join(" ".join(lines[-4:]).split())[-1000:]
